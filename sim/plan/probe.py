"""One rate tried on a fleet: does it meet the objective, and how surely."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from scipy.special import stdtrit

from sim.fleet.config import FleetConfig, RouterName
from sim.plan.objective import Objective
from sim.plan.traffic import one_at_a_time, steady
from sim.policies.config import PolicyConfig
from sim.results.metrics import Latencies
from sim.results.run_records import RunRecords
from sim.results.stability import judge_stability
from sim.results.window import Window, measured_requests, measured_window
from sim.scenario.model import Scenario
from sim.sweep.prepare import make_run
from sim.units import NS_PER_S

CONFIDENCE: Final = 0.95
_HOPELESS: Final = 1.5
"""A seed never ends a trial before it takes this much of a limit."""
LIFETIMES: Final = 40
"""A run lasts at least this many times as long as a request that is alone."""
ALONE: Final = 60
"""Requests of the run in which each is alone."""
Outcome = Literal["meets", "misses", "undecided"]


@dataclass(frozen=True)
class Probe:
    """What a fleet did at one rate, seed by seed.

    ``used`` has one row per seed, one column per part of the objective. ``reason`` says why a seed
    was unstable, empty if none was. The rule: a rate *meets* the objective if no seed is unstable and
    every part's mean lies within its limit, with the whole 95 % interval (Student's t over seeds)
    on the safe side; it *misses* if a seed is unstable or the interval of a part lies beyond
    its limit; else it is *undecided*, which a plan takes for a miss. One seed has no interval.
    """

    rate_per_s: float
    replicas: int
    used: tuple[tuple[float, ...], ...]
    reason: str
    output_tokens_per_s: float

    @property
    def mean(self) -> tuple[float, ...]:
        """Mean use of every part over the seeds."""
        return tuple(float(mean) for mean in np.asarray(self.used).mean(axis=0))

    @property
    def half_width(self) -> tuple[float, ...]:
        """Half width of the 95 % interval of every mean; 0 with one seed."""
        seeds = len(self.used)
        if seeds < 2:
            return (0.0,) * len(self.mean)
        scale = _quantile(seeds) / math.sqrt(seeds)
        return tuple(float(scale * each) for each in np.asarray(self.used).std(axis=0, ddof=1))

    @property
    def outcome(self) -> Outcome:
        """Whether the objective is met, by the rule above."""
        bounds = list(zip(self.mean, self.half_width, strict=True))
        if self.reason or any(mean - half > 1 for mean, half in bounds):
            return "misses"
        return "meets" if all(mean + half <= 1 for mean, half in bounds) else "undecided"

    @property
    def meets(self) -> bool:
        """Whether the objective is met at the stated confidence."""
        return self.outcome == "meets"

    @property
    def binding(self) -> int:
        """Number of the part that takes most of its limit, at its upper bound."""
        upper = [mean + half for mean, half in zip(self.mean, self.half_width, strict=True)]
        return int(np.argmax(upper))


def hopeless(seeds: int) -> float:
    """What one seed may take of a limit before no trial over ``seeds`` seeds can meet it.

    If a seed takes x, the mean is at least x / n; its upper bound is least, x (1 + t) / n, where the
    others take nothing. It is never less than 1.5: of a near miss more seeds tell by how much.
    """
    return max(_HOPELESS, seeds / (1 + _quantile(seeds))) if seeds > 1 else _HOPELESS


def _quantile(seeds: int) -> float:
    return float(stdtrit(seeds - 1, (1 + CONFIDENCE) / 2))


@dataclass(frozen=True)
class Alone:
    """Requests that meet no other: how much they use of every part, and their mean E2EL."""

    used: tuple[float, ...]
    e2el_s: float


@dataclass(frozen=True)
class Bench:
    """A policy of a scenario on trial; ``requests`` is the least number in one run."""

    scenario: Scenario
    policy: PolicyConfig
    objective: Objective
    router: RouterName
    requests: int

    def alone(self) -> Alone:
        """Serve requests one at a time, on one replica, under the first seed."""
        records = self._run(one_at_a_time(self.scenario, ALONE), 1, self.scenario.run.seeds[0])
        rows = np.arange(len(records.requests["request"]))
        e2el = Latencies.of(records, rows).e2el
        return Alone(self.objective.used(records, rows), float(e2el.mean()) / NS_PER_S)

    def probe(
        self, rate_per_s: float, replicas: int, lifetime_s: float, seeds: Sequence[int] = (), longer: int = 1
    ) -> Probe:
        """Serve a rate under the scenario's seeds, or others, as long as it may still meet the objective.

        Runs are ``longer`` times as long as they have to be. A trial that ends early never meets it.
        """
        seeds = seeds or self.scenario.run.seeds
        most = hopeless(len(seeds))
        count = longer * max(self.requests, math.ceil(LIFETIMES * lifetime_s * rate_per_s))
        scenario = steady(self.scenario, rate_per_s, count)
        used, tokens, reason = [], [], ""
        for seed in seeds:
            records = self._run(scenario, replicas, seed)
            window = measured_window(records)
            used.append(self.objective.used(records, measured_requests(records, window)))
            tokens.append(_tokens_per_s(records, window))
            reason = judge_stability(records).reason
            found = Probe(rate_per_s, replicas, tuple(used), reason, float(np.mean(tokens)))
            if max(used[-1]) > most or (len(used) > 1 and found.outcome == "misses") or reason:
                break
        return found

    def _run(self, scenario: Scenario, replicas: int, seed: int) -> RunRecords:
        fleet = FleetConfig(replicas=replicas, router=self.router)
        return make_run(scenario.model_copy(update={"fleet": fleet}), self.policy, seed)[0]


def _tokens_per_s(records: RunRecords, window: Window) -> float:
    end = records.steps["end_ns"]
    inside = (end > window.start_ns) & (end <= window.end_ns)
    return float(records.steps["emitted"][inside].sum()) / window.seconds
