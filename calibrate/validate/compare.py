"""Simulated against served: errors, re-run spread, verdicts, and whether policies rank alike.

The rule of a cell and metric: |simulated - mean of the engine's runs| <= max(10 % of that mean, 1.5 x the
spread of its runs). The spread is the largest less the smallest: what the engine cannot say about itself
cannot be asked of a simulation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import sqrt
from statistics import fmean
from typing import Final

from calibrate.validate.measures import COMPARED, JUDGED, StepError

ALLOWED: Final = 0.10
SPREADS: Final = 1.5
BIAS: Final = 0.05
"""Largest mean error over all cells, of each judged metric."""


@dataclass(frozen=True)
class Served:
    """One load under one policy: metrics simulated, and of every run of the engine."""

    load: str
    policy: str
    simulated: dict[str, float]
    runs: tuple[dict[str, float], ...]
    step_errors: tuple[StepError, ...] = ()

    def compared(self, metric: str) -> Compared:
        """One metric of this cell."""
        return Compared(self.simulated[metric], tuple(run[metric] for run in self.runs))

    @property
    def table(self) -> dict[str, Compared]:
        """All metrics by name."""
        return {metric: self.compared(metric) for metric in COMPARED}


@dataclass(frozen=True)
class Compared:
    """One number, simulated and from every run of the engine."""

    simulated: float
    engine: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Mean of the engine's runs."""
        return fmean(self.engine)

    @property
    def spread(self) -> float:
        """Largest run less the smallest."""
        return max(self.engine) - min(self.engine)

    @property
    def error(self) -> float:
        """Simulated over the mean, less 1; 0 where both are nothing."""
        return self.simulated / self.mean - 1 if self.mean else float(self.simulated != 0)

    @property
    def holds(self) -> bool:
        """Whether the rule is kept."""
        return abs(self.simulated - self.mean) <= max(ALLOWED * abs(self.mean), SPREADS * self.spread)


@dataclass(frozen=True)
class Order:
    """Two policies at one load that really differ in a metric by more than the noise of either."""

    load: str
    metric: str
    first: str
    second: str
    real: float
    simulated: float
    noise: float

    @property
    def wrong(self) -> bool:
        """Whether the simulation has the other one ahead."""
        return self.real * self.simulated < 0


@dataclass(frozen=True)
class Verdict:
    """All cells of a comparison, judged."""

    cells: tuple[Served, ...]

    @property
    def misses(self) -> list[tuple[Served, str]]:
        """Cells and judged metrics that break the rule."""
        return [(cell, m) for cell in self.cells for m in JUDGED if not cell.compared(m).holds]

    def bias(self, metric: str) -> float:
        """Mean error of a metric over all cells."""
        return fmean(cell.compared(metric).error for cell in self.cells)

    @property
    def orders(self) -> list[Order]:
        """Every pair of policies that the engine tells apart."""
        loads = dict.fromkeys(cell.load for cell in self.cells)
        groups = [[cell for cell in self.cells if cell.load == load] for load in loads]
        return [
            order
            for metric in JUDGED
            for group in groups
            for pair in combinations(group, 2)
            if (order := _order(pair, metric, self.noise(metric))) is not None
        ]

    def noise(self, metric: str) -> float:
        """Relative standard deviation of one engine run, over all cells: few runs say little of their own."""
        groups = [cell.compared(metric).engine for cell in self.cells]
        squares = sum(sum((run / fmean(runs) - 1) ** 2 for run in runs) for runs in groups if fmean(runs))
        return sqrt(squares / max(sum(len(runs) - 1 for runs in groups), 1))

    @property
    def wrong_orders(self) -> list[Order]:
        """Those that the simulation has the other way round."""
        return [order for order in self.orders if order.wrong]

    @property
    def passed(self) -> bool:
        """Whether every rule is kept."""
        biased = any(abs(self.bias(metric)) > BIAS for metric in JUDGED)
        return not (self.misses or self.wrong_orders or biased)


def _order(pair: Sequence[Served], metric: str, noise: float) -> Order | None:
    """The pair's difference, unless noise may have made it.

    Noise is the larger of both re-run spreads, and of two standard deviations of a difference of means
    at the ``noise`` that all cells together show.
    """
    a, b = (cell.compared(metric) for cell in pair)
    real = b.mean - a.mean
    of_means = 2 * noise * sqrt(a.mean**2 / len(a.engine) + b.mean**2 / len(b.engine))
    least = max(a.spread, b.spread, of_means)
    if abs(real) <= least:
        return None
    return Order(pair[0].load, metric, pair[0].policy, pair[1].policy, real, b.simulated - a.simulated, least)
