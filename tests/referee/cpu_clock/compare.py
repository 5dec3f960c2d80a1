"""Predicted and recorded runs side by side: errors, noise, and the order of policies at each load."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import exp, hypot, log
from typing import Final, NamedTuple

from calibrate.profile import Profile
from tests.referee.cpu_clock.costs import Prices
from tests.referee.cpu_clock.noise import speed
from tests.referee.cpu_clock.predict import (
    OPEN_METRICS,
    Metrics,
    at_speed,
    closed_cases,
    measured_closed,
    measured_open,
    open_cases,
    predict,
)
from tests.referee.cpu_clock.recordings import Recorded

SEEDS: Final = 4
RANKED: Final = "e2el_mean_ms"
EQUAL: Final = 0.03
"""A predicted difference below this (in logs) is none: means over the seeds have about half that noise."""


@dataclass(frozen=True)
class Compared:
    """One open-loop run.

    ``noise`` is the standard deviation of the log of each metric that is to be expected of one real
    run: every step longer or shorter by the step noise, and luck. ``own`` is simulated with the run's
    ``speed``, so it is no prediction.
    """

    name: str
    load: float
    measured: Metrics
    predicted: Metrics
    noise: Metrics
    speed: float
    own: Metrics

    def error(self, metric: str) -> float:
        """Predicted over measured, less 1."""
        return self.predicted[metric] / self.measured[metric] - 1

    def own_error(self, metric: str) -> float:
        """The same with the run's own speed."""
        return self.own[metric] / self.measured[metric] - 1

    def deviations(self, metric: str) -> float:
        """Log error in standard deviations of the noise."""
        return log(self.predicted[metric] / self.measured[metric]) / self.noise[metric]


class ClosedCompared(NamedTuple):
    """One closed-loop run: output tokens per CPU second."""

    name: str
    clients: float
    measured: float
    predicted: float

    @property
    def error(self) -> float:
        """Predicted over measured, less 1."""
        return self.predicted / self.measured - 1


class Order(NamedTuple):
    """Two policies at one load: logs of the first's mean E2EL over the second's, and their noise.

    ``own`` is simulated with each run's own speed.
    """

    load: float
    first: str
    second: str
    measured: float
    predicted: float
    own: float
    noise: float

    @property
    def deviations(self) -> float:
        """Real difference in standard deviations of its noise."""
        return abs(self.measured) / self.noise

    @property
    def sign(self) -> str:
        """Whether the prediction orders the two as the real runs did, ``right``, ``equal`` or ``wrong``."""
        return _sign(self.measured, self.predicted)

    @property
    def own_sign(self) -> str:
        """The same with each run's own speed."""
        return _sign(self.measured, self.own)


def _sign(measured: float, found: float) -> str:
    if abs(found) < EQUAL:
        return "equal"
    return "right" if measured * found > 0 else "wrong"


def compare_open(
    recorded: Recorded, profile: Profile, step_noise: float, seeds: int = SEEDS
) -> list[Compared]:
    """Every open-loop run, simulated as calibrated, with steps longer by the noise, and at its own speed."""
    slower, prices = at_speed(profile, exp(step_noise)), Prices(profile)
    found = []
    for case in open_cases(recorded):
        own = speed(recorded, case, prices)
        base = predict(case, profile, seeds)
        late = predict(case, slower, seeds).mean
        noise = {m: hypot(log(late[m] / base.mean[m]), base.luck[m] / base.mean[m]) for m in OPEN_METRICS}
        at_own = predict(case, at_speed(profile, own), seeds).mean
        measured = measured_open(recorded, case)
        found.append(Compared(case.name, case.load, measured, base.mean, noise, own, at_own))
    return found


def compare_closed(recorded: Recorded, profile: Profile, seeds: int = SEEDS) -> list[ClosedCompared]:
    """Every closed-loop run of the second set."""
    return [
        ClosedCompared(
            case.name,
            case.load,
            measured_closed(recorded, case),
            predict(case, profile, seeds).mean["output_tokens_per_s"],
        )
        for case in closed_cases(recorded)
    ]


def orders(runs: Sequence[Compared]) -> list[Order]:
    """Every pair of policies at every load."""
    return [
        Order(
            a.load,
            a.name,
            b.name,
            log(a.measured[RANKED] / b.measured[RANKED]),
            log(a.predicted[RANKED] / b.predicted[RANKED]),
            log(a.own[RANKED] / b.own[RANKED]),
            hypot(a.noise[RANKED], b.noise[RANKED]),
        )
        for a, b in combinations(runs, 2)
        if a.load == b.load
    ]
