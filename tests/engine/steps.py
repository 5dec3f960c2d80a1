"""Small runs of six requests, and profiles with one thing more in them, for tests of what a step costs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from calibrate.profile import Profile, Term
from sim.cost.breakdown import breakdown_ns
from sim.engine.config import EngineConfig
from sim.engine.simulate import Setup, simulate
from sim.policies.base import Batch, Depths, PolicyDefaults
from sim.results.run_records import RunRecords
from tests.engine.modelled import RecordedAcceptance, linear_profile, requests

LENGTHS = (20, 45, 70, 33, 61, 52)


class Turns(PolicyDefaults):
    """Depths by request and output length, with nothing learned: 0 to 3, other for every sequence."""

    def draft_depths(self, batch: Batch) -> Depths:
        """Depths that differ within a batch."""
        return (batch.request + batch.context_tokens) % 4


class ByTurn(PolicyDefaults):
    """Depth 1, 2, 3, 0, 1, ... in the order of its decisions."""

    def __init__(self) -> None:
        self.asked = 0

    def draft_depths(self, batch: Batch) -> Depths:
        """One more than before, modulo 4."""
        self.asked += 1
        return self.asked % 4


def extras(profile: Profile, eager_ms: float, piecewise_ms: float) -> Profile:
    """The profile with constant costs of missed graphs."""

    def one(ms: float) -> tuple[Term, ...]:
        return (Term(name="extra", mark="analytic", source="test", fixed_ns=ms * 1e6),)

    update = {"eager_extra": one(eager_ms), "piecewise_extra": one(piecewise_ms)}
    return profile.model_copy(update={"target": profile.target.model_copy(update=update)})


def hosted(profile: Profile, ms: float, per_logit_ms: float = 0.0) -> Profile:
    """The profile with host time of a step, some of it for every logit."""
    term = Term(
        name="loop",
        mark="analytic",
        source="test",
        fixed_ns=ms * 1e6,
        per_ns={"logits": per_logit_ms * 1e6},
    )
    return profile.model_copy(update={"target": profile.target.model_copy(update={"host": (term,)})})


def run(
    policy: Any,
    profile: Profile | None = None,
    preset: str = "ideal",
    luck: int = 3,
    arrivals: Any = None,
    structured: tuple[bool, ...] = (),
    **engine: Any,
) -> RunRecords:
    """Six requests of different lengths, all at once unless ``arrivals`` says otherwise."""
    profile = profile or linear_profile()
    drawn = np.random.Generator(np.random.Philox(luck)).integers(0, 5, size=(len(LENGTHS), 80))
    setup = Setup(
        requests(np.zeros(len(LENGTHS)) if arrivals is None else arrivals, (40, 7, 90, 33, 12, 60), LENGTHS),
        profile,
        profile.drafters["d"],
        EngineConfig(**({"preset": preset, "kv_blocks": 1000} | engine)),
        (RecordedAcceptance(drawn.tolist()),),  # type: ignore[arg-type]
        3,
        structured=structured,
    )
    return simulate(setup, policy)


def same(a: RunRecords, b: RunRecords) -> bool:
    """Whether two runs have the same records, byte for byte."""
    tables = [(a.requests, b.requests), (a.steps, b.steps)]
    equal = all(x.keys() == y.keys() and all(np.array_equal(x[k], y[k]) for k in x) for x, y in tables)
    return equal and all(np.array_equal(x, y) for x, y in zip(a.chunk_gaps, b.chunk_gaps, strict=True))


def finish(records: RunRecords) -> np.ndarray:
    return records.requests["finish_ns"]


def took(records: RunRecords) -> np.ndarray:
    return records.steps["end_ns"] - records.steps["start_ns"]


def adds_up(records: RunRecords, profile: Profile) -> None:
    """The parts of all steps are their latencies, but for a nanosecond of rounding per part and step."""
    parts = breakdown_ns(records.steps, profile, profile.drafters["d"])
    assert sum(parts.values()) == pytest.approx(took(records).sum(), abs=6 * len(took(records)))


def windowed(window: int) -> Profile:
    """Half of the layers see the last ``window`` tokens, half see all; 1 us per token read, 2 per pair."""
    profile = linear_profile()
    read = {"context_tokens": 1e3, "query_context_tokens": 1e2, "prefill_pairs": 2e3}
    terms = (
        Term(name="attention", mark="analytic", source="test", per_ns=read),
        Term(
            name="attention_window",
            mark="analytic",
            source="test",
            per_ns={f"window_{name}": ns for name, ns in read.items()},
        ),
    )
    work = profile.target.work.model_copy(update={"window_tokens": window})
    target = profile.target.model_copy(update={"work": work, "verify": (*profile.target.verify, *terms)})
    return profile.model_copy(update={"target": target})
