"""The campaign's runs beside their predictions: errors, spread, the order of policies, the advice."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import log, sqrt
from typing import Final, NamedTuple

import numpy as np

from calibrate.profile import Profile
from tests.referee.cpu_clock.campaign.plan import LOADS, SEED, SERVED, STATIC, Item, Load
from tests.referee.cpu_clock.campaign.predict import measured, predicted
from tests.referee.cpu_clock.campaign.recordings import Run, calibrated, cells_of
from tests.referee.cpu_clock.compare import RANKED
from tests.referee.cpu_clock.costs import Prices
from tests.referee.cpu_clock.predict import OPEN_METRICS, Metrics

WITHIN: Final = 0.10
OTHER_LUCK: Final = tuple(SEED + 1000 * i for i in range(1, 5))
CLEAR: Final = 2.0
"""Standard errors that a real difference must have to count."""


@dataclass(frozen=True)
class Served:
    """One policy at one load: every repetition as measured, and predictions of it.

    ``others`` are predictions of each repetition from the calibration runs of all other ones;
    ``unlucky`` is the mean over luck that is not the recorded one. ``speeds`` are recorded over priced
    time of each repetition's own steps.
    """

    item: Item
    runs: tuple[Metrics, ...]
    predicted: Metrics
    others: tuple[Metrics, ...]
    unlucky: Metrics
    speeds: tuple[float, ...]

    @property
    def policy(self) -> str:
        """Name in tables."""
        return self.item.policy

    @property
    def load(self) -> Load:
        """Where it was served."""
        return self.item.load

    def real(self, metric: str) -> float:
        """Measured: the mean of the repetitions."""
        return float(np.mean([run[metric] for run in self.runs]))

    def spread(self, metric: str) -> float:
        """Largest over smallest repetition, less 1."""
        values = [run[metric] for run in self.runs]
        return max(values) / min(values) - 1

    def error(self, metric: str) -> float:
        """Predicted over measured, less 1."""
        return self.predicted[metric] / self.real(metric) - 1

    def median_error(self, metric: str) -> float:
        """Predicted over the median of the repetitions, less 1."""
        return self.predicted[metric] / float(np.median([run[metric] for run in self.runs])) - 1

    def unlucky_error(self, metric: str) -> float:
        """The same without knowing the run's luck."""
        return self.unlucky[metric] / self.real(metric) - 1

    def other_errors(self, metric: str) -> list[float]:
        """Each repetition against the prediction from the others' calibration."""
        return [p[metric] / m[metric] - 1 for p, m in zip(self.others, self.runs, strict=True)]


def compare(runs: Sequence[Run], whole: bool = True) -> list[Served]:
    """Everything served, by load and policy; ``others`` and ``unlucky`` only if it is to be the whole."""
    profile = calibrated(runs)
    numbers = sorted({run.repetition for run in runs if run.item.kind == "serve"}) if whole else []
    without = {n: calibrated([run for run in runs if run.repetition != n]) for n in numbers}
    luck = OTHER_LUCK if whole else ()
    by_item = defaultdict(list)
    for run in runs:
        by_item[run.item].append(run)
    items = [Item("serve", policy, load) for load in LOADS for policy in SERVED]
    return [_served(item, by_item[item], profile, without, luck) for item in items if by_item[item]]


def _served(
    item: Item, runs: Sequence[Run], profile: Profile, without: dict[int, Profile], luck: Sequence[int]
) -> Served:
    unlucky = [predicted(item, profile, seed) for seed in luck]
    return Served(
        item=item,
        runs=tuple(map(measured, runs)),
        predicted=predicted(item, profile),
        others=tuple(predicted(item, without[run.repetition]) for run in runs if without),
        unlucky={m: float(np.mean([each[m] for each in unlucky])) for m in OPEN_METRICS if unlucky},
        speeds=tuple(_speed(run, Prices(profile)) for run in runs),
    )


def _speed(run: Run, prices: Prices) -> float:
    cells = cells_of([run])
    priced = [prices.step_ms(c.tokens, c.sequences, c.depth, c.drafts, c.query_context) for c in cells]
    return sum(cell.step_ms for cell in cells) / sum(priced)


def run_noise(served: Sequence[Served], metric: str) -> float:
    """Standard deviation of the log of one run's metric between repetitions, pooled over all runs."""
    return _pooled([np.log([run[metric] for run in each.runs]).tolist() for each in served])


def _pooled(groups: Iterable[Sequence[float]]) -> float:
    """Standard deviation within groups, each around its own mean."""
    some = [group for group in groups if len(group) > 1]
    squares = sum(float(np.var(group) * len(group)) for group in some)
    return sqrt(squares / sum(len(group) - 1 for group in some)) if some else 0.0


# -- order -----------------------------------------------------------------------------------------


class Pair(NamedTuple):
    """Two policies at one load: log of the first's mean E2EL over the second's, measured and predicted.

    The measured one is the mean of the repetitions' paired ones, ``error`` its standard error, from a
    spread that is pooled over the load.
    """

    load: Load
    first: str
    second: str
    measured: float
    predicted: float
    error: float

    @property
    def clear(self) -> bool:
        """Whether the real difference exceeds its noise."""
        return abs(self.measured) > CLEAR * self.error

    @property
    def right(self) -> bool:
        """Whether the prediction orders the two as the real engine did."""
        return self.measured * self.predicted > 0


def pairs(served: Sequence[Served]) -> list[Pair]:
    """Every pair of policies at every load."""
    found = []
    for load in LOADS:
        here = list(combinations([each for each in served if each.load == load], 2))
        logs = [_log_ratios(a, b) for a, b in here]
        noise = _pooled(logs)
        for (a, b), ratios in zip(here, logs, strict=True):
            expected = log(a.predicted[RANKED] / b.predicted[RANKED])
            error = noise / sqrt(len(ratios))
            found.append(Pair(load, a.policy, b.policy, float(np.mean(ratios)), expected, error))
    return found


def _log_ratios(a: Served, b: Served) -> list[float]:
    return [log(x[RANKED] / y[RANKED]) for x, y in zip(a.runs, b.runs, strict=True)]


# -- advice ----------------------------------------------------------------------------------------


class Advice(NamedTuple):
    """What the simulation recommends at one load, and what the real engine made of it.

    ``static`` is the fixed depth that the simulation finds best, ``hindsight`` the one that the real
    engine did best with. Gains are real: how much lower the recommended policy's mean E2EL is.
    """

    load: Load
    recommended: Served
    static: Served
    hindsight: Served
    off: Served
    k3: Served
    error: float

    def gain(self, other: Served) -> float:
        """Log of the other's real mean E2EL over the recommended policy's; above 0 the advice is better."""
        return float(np.mean(_log_ratios(other, self.recommended)))

    def beats(self, other: Served) -> bool:
        """Whether by more than the noise."""
        return self.gain(other) > CLEAR * self.error


def advice(served: Sequence[Served], choose: str | None = None) -> list[Advice]:
    """At every load, for the policy that is predicted to be best there, or for the one named."""
    found, noise = [], {pair.load: pair.error for pair in pairs(served)}
    for load in LOADS:
        here = {each.policy: each for each in served if each.load == load}
        fixed = [here[name] for name in STATIC if name in here]
        found.append(
            Advice(
                load,
                here[choose] if choose else min(here.values(), key=_predicted),
                min(fixed, key=_predicted),
                min(fixed, key=lambda each: each.real(RANKED)),
                here["off"],
                here["k3"],
                noise[load],
            )
        )
    return found


def _predicted(each: Served) -> float:
    return each.predicted[RANKED]


def best_over_all(served: Sequence[Served], value: Callable[[Served], float] = _predicted) -> str:
    """The one policy with the lowest mean log E2EL over the loads, by default as predicted."""
    return min(SERVED, key=lambda name: sum(log(value(each)) for each in served if each.policy == name))
