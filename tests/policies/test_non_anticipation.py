"""No policy decides from the future: two worlds that part later give the same decisions until then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from sim.engine.config import EngineConfig
from sim.engine.presets import PresetName
from sim.engine.simulate import Setup, simulate
from sim.policies.base import Batch, Claims, Depths, Outcome, Policy
from sim.policies.config import Bounds
from sim.policies.registry import POLICIES
from sim.streams import uniforms
from tests.bench.decisions import NEEDED
from tests.engine.modelled import linear_profile, requests

DEPTH, OUTPUT, REQUESTS, PARTS_AT = 5, 60, 6, 30
CHAINS = [name for name in POLICIES if name not in ("off", "tree")]


@dataclass(frozen=True)
class World:
    """Runs and claims of all requests; claims are the same in every world, runs only up to a position."""

    parts_at: int
    max_depth: int = DEPTH

    def path(self, request: int, prompt_tokens: int, output_tokens: int) -> World.Path:
        shared, other = (
            (uniforms(seed, "world", request, output_tokens) * (DEPTH + 1)).astype(np.uint8)
            for seed in (1, 2)
        )
        claims = uniforms(3, "claims", request, output_tokens * DEPTH).reshape(-1, DEPTH)
        here = np.where(np.arange(output_tokens) < self.parts_at, shared, other)
        return World.Path(here, claims.astype(np.float32))

    def expected_tokens_per_round(self, depth: int) -> float:
        return float("nan")

    @dataclass(frozen=True)
    class Path:
        run: NDArray[np.uint8]
        claims: Claims
        found: None = None

        def confidence(self) -> Claims:
            return self.claims


@dataclass
class Listened:
    """A policy that writes down what it is told of the past and all it answers."""

    inner: Policy
    heard: list[tuple[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        for name in (
            "clairvoyant",
            "wants_confidence",
            "wants_progress",
            "drafts",
            "tree",
            "acceptance_loss",
        ):
            setattr(self, name, getattr(self.inner, name))
        self.wants_outcomes = True

    def draft_depths(self, batch: Batch) -> Depths:
        self.heard.append(("seen", np.stack([batch.request, batch.context_tokens]).tolist()))
        return self._noted("answer", self.inner.draft_depths(batch))

    def stop_depths(self, batch: Batch, depths: Depths, confidence: Claims) -> Depths:
        return self._noted("answer", self.inner.stop_depths(batch, depths, confidence))

    def verify_depths(self, batch: Batch, depths: Depths, confidence: Claims) -> Depths:
        return self._noted("answer", self.inner.verify_depths(batch, depths, confidence))

    def observe(self, outcome: Outcome) -> None:
        self.heard.append(
            ("outcome", np.stack([outcome.request, outcome.drafted, outcome.accepted]).tolist())
        )
        if self.inner.wants_outcomes:
            self.inner.observe(outcome)

    def _noted(self, what: str, depths: Depths) -> Depths:
        self.heard.append((what, np.asarray(depths).tolist()))
        return depths


def lived(name: str, preset: PresetName, parts_at: int) -> list[tuple[str, Any]]:
    """What one policy heard and answered in one world."""
    config = POLICIES[name](policy=name, **NEEDED.get(name, {}))
    policy = Listened(config.build(Bounds(DEPTH)))
    profile = linear_profile(20.0, 0.5, 1e-4)
    setup = Setup(
        requests=requests(np.arange(REQUESTS) * 0.1, 40, OUTPUT),
        profile=profile,
        drafter=profile.drafters["d"],
        engine=EngineConfig(preset=preset, kv_blocks=1000),
        processes=(World(parts_at),),
        max_depth=DEPTH,
        tpot_limits_ns=(20_000_000,),
    )
    simulate(setup, policy)  # type: ignore[arg-type]
    return policy.heard


def first_difference(one: Sequence[object], other: Sequence[object]) -> int:
    """Where two records part; their length if they never do."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), len(one))


@pytest.mark.parametrize("preset", ["ideal", "vllm_v1"])
@pytest.mark.parametrize("name", [name for name in CHAINS if name != "oracle"])
def test_decisions_are_the_same_until_an_outcome_differs(name: str, preset: PresetName) -> None:
    """The worlds part at output position 30; the first thing to differ is what has been accepted."""
    one, other = lived(name, preset, OUTPUT), lived(name, preset, PARTS_AT)
    at = first_difference(one, other)
    drafted = any(what == "answer" and np.any(value) for what, value in one[:at])
    if not drafted:
        assert name in ("mlc_auto",), "the test says nothing about a policy that never drafts"
    assert at < len(one)
    assert one[at][0] in ("seen", "outcome")


def test_the_oracle_decides_otherwise_before_any_outcome_differs() -> None:
    """So the test can fail: a clairvoyant policy fails it."""
    one, other = lived("oracle", "ideal", OUTPUT), lived("oracle", "ideal", PARTS_AT)
    assert one[first_difference(one, other)][0] == "answer"
