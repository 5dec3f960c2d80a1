"""Runs of the claims' scenarios, and what is read off their steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from calibrate.profile import Drafter, Profile, load_profile
from sim.results.run_records import Columns, RunRecords
from sim.scenario.load import expand, load_scenario
from sim.scenario.model import Cell
from sim.sweep.prepare import make_run
from tests.claims import theory

CLAIMS = Path(__file__).parents[2] / "scenarios" / "claims"
Float64 = NDArray[np.float64]
Choice = Callable[[Columns], NDArray[np.bool_]]


@dataclass(frozen=True)
class Steps:
    """Some steps of one policy in one cell, its seeds one after another."""

    columns: Columns
    profile: Profile
    drafter: Drafter | None

    def mean(self, name: str) -> float:
        """Mean of a column."""
        return float(self.columns[name].mean())

    @property
    def count(self) -> int:
        """How many steps."""
        return len(self.columns["tokens"])

    @cached_property
    def latency_ns(self) -> NDArray[np.int64]:
        """Latency of each step."""
        return self.columns["end_ns"] - self.columns["start_ns"]

    @property
    def step_ms(self) -> float:
        """Mean latency."""
        return float(self.latency_ns.mean()) / 1e6

    @property
    def draft_ms(self) -> float:
        """Mean time of the drafter's passes."""
        return self.mean("draft_ns") / 1e6

    @property
    def target_ms(self) -> float:
        """Mean time of a step without its drafter: target pass, sampling, host."""
        return self.step_ms - self.draft_ms

    @property
    def emitted(self) -> float:
        """Output tokens per step."""
        return self.mean("emitted")

    @property
    def tokens_per_s(self) -> float:
        """Output tokens per second of step time."""
        return 1e3 * self.emitted / self.step_ms

    @property
    def token_ms(self) -> float:
        """Step time per output token of one sequence."""
        return self.step_ms * self.mean("sequences") / self.emitted

    @property
    def context(self) -> float:
        """Mean KV length of a sequence."""
        return self.mean("context_tokens") / self.mean("sequences")


@cache
def cells(name: str) -> dict[str, Cell]:
    """Cells of a claim's scenario by label, ``base`` without a sweep."""
    return {cell.label: cell for cell in expand(load_scenario(CLAIMS / f"{name}.yaml"))}


@cache
def runs(name: str, label: str, policy: str) -> tuple[RunRecords, ...]:
    """Records of one policy in one cell, one per seed."""
    scenario = cells(name)[label].scenario
    (config,) = (each for each in scenario.policies if each.title == policy)
    return tuple(make_run(scenario, config, seed)[0] for seed in scenario.run.seeds)


def clients(name: str, label: str) -> int:
    """Requests that are in flight at once."""
    return cells(name)[label].scenario.workload.arrival.max_concurrency or 0


def full_steps(name: str, label: str, policy: str) -> Steps:
    """Steps without prefill in which every client has a sequence decoding."""
    count = clients(name, label)
    return _steps(name, label, policy, lambda c: (c["decodes"] == count) & (c["prefill_tokens"] == 0))


def first_wave(name: str, label: str, policy: str) -> Steps:
    """The full steps before the first answer is complete: the same sequences in each."""
    count = clients(name, label)

    def unchanged(c: Columns) -> NDArray[np.bool_]:
        full = (c["decodes"] == count) & (c["prefill_tokens"] == 0)
        ended = np.cumsum(np.maximum.accumulate(full) & ~full) > 0
        return np.asarray(full & ~ended)

    return _steps(name, label, policy, unchanged)


def _steps(name: str, label: str, policy: str, choose: Choice) -> Steps:
    made = [records.steps for records in runs(name, label, policy)]
    chosen = [{key: values[choose(steps)] for key, values in steps.items()} for steps in made]
    scenario = cells(name)[label].scenario
    profile = _profile(scenario.profile_path)
    return Steps(
        columns={key: np.concatenate([each[key] for each in chosen]) for key in made[0]},
        profile=profile,
        drafter=None if policy == "off" else scenario.drafter_of(profile),
    )


@cache
def _profile(path: Path) -> Profile:
    return load_profile(path)


def request_sum(name: str, label: str, policy: str, column: str) -> int:
    """A column of the requests, added up over requests and seeds."""
    return sum(int(records.requests[column].sum()) for records in runs(name, label, policy))


def tpot_ms(name: str, label: str, policy: str) -> Float64:
    """Time per output token after the first, of every request of every seed."""
    each = [records.requests for records in runs(name, label, policy)]
    return np.concatenate(
        [(r["finish_ns"] - r["first_token_ns"]) / (r["output_tokens"] - 1) / 1e6 for r in each]
    )


def whole_run_tokens_per_s(name: str, label: str, policy: str) -> float:
    """Output tokens per second from the first request sent to the last one answered."""
    took_ns = sum(int(records.requests["finish_ns"].max()) for records in runs(name, label, policy))
    return 1e9 * request_sum(name, label, policy, "output_tokens") / took_ns


def class_counts(name: str, label: str) -> tuple[float, float]:
    """Mean number of requests of the first two classes among those that start the run."""
    count = clients(name, label)
    first = [r.requests["class_id"][:count] for r in runs(name, label, "off")]
    easy = float(np.mean([(ids == 0).sum() for ids in first]))
    return easy, count - easy


def predicted_gain(name: str, label: str, closed_loop: bool = False) -> float:
    """What theory expects of a depth per sequence, for the first requests or for the whole run."""
    steps = first_wave(name, label, "per sequence")
    assert steps.drafter is not None
    half = clients(name, label) / 2
    sizes = (half, half) if closed_loop else class_counts(name, label)
    return theory.gain_of_own_depths(
        steps.profile, steps.drafter, sizes, (0.9, 0.2), steps.context, closed_loop
    )
