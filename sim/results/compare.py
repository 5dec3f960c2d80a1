"""Policies compared as paired differences over seeds.

Every policy meets the same requests and the same luck under one seed (common random numbers), so
the unit of inference is the seed and the statistic the difference within it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from sim.errors import InputError
from sim.results.metrics import Metrics
from sim.results.names import METRICS

CONFIDENCE: Final = 0.95
Verdict = Literal["better", "worse", "differs", "no difference", "one seed", "no data"]
"""``differs`` is for metrics of which neither direction is better; ``one seed`` has no interval."""


@dataclass(frozen=True)
class PolicyResult:
    """Metrics of one policy at one load, one entry per seed, in the same order for every policy.

    ``bound`` marks a clairvoyant policy: shown as a limit, never recommended.
    """

    label: str
    runs: tuple[Metrics, ...]
    bound: bool = False

    @property
    def unstable(self) -> bool:
        """Whether the backlog grew under half of the seeds or more; no mean of such a policy is reported."""
        return 2 * self.unstable_seeds >= len(self.runs)

    @property
    def in_system(self) -> float:
        """Mean number of requests in the system while requests arrived, over seeds."""
        return float(np.mean([run.stability.mean for run in self.runs]))

    @property
    def unstable_seeds(self) -> int:
        """Seeds under which the backlog grew; they are left out of means and differences."""
        return sum(run.unstable for run in self.runs)

    def values(self, metric: str) -> NDArray[np.float64]:
        """One metric per seed; NaN where the run was unstable."""
        return np.array([np.nan if run.unstable else run[metric] for run in self.runs])

    def mean(self, metric: str) -> float:
        """Mean of one metric over the seeds that have it; NaN when unstable or without data."""
        values = self.values(metric)
        known = values[~np.isnan(values)]
        return float("nan") if self.unstable or not len(known) else float(known.mean())


@dataclass(frozen=True)
class Cell:
    """All policies at one load; ``load`` is what a table calls it (``8/s``, ``c=32``)."""

    load: str
    policies: tuple[PolicyResult, ...]

    def policy(self, label: str) -> PolicyResult:
        """The policy of that name; raises ``InputError`` naming those that exist."""
        for policy in self.policies:
            if policy.label == label:
                return policy
        known = ", ".join(policy.label for policy in self.policies)
        raise InputError(f"no policy {label!r} at load {self.load}; it has {known}")


@dataclass(frozen=True)
class Comparison:
    """Cells of one sweep, the policy that others are compared with, and the metric that decides.

    ``error`` is the relative error of the profile's step times, if it states one: differences
    within it count as none.
    """

    cells: tuple[Cell, ...]
    baseline: str
    metric: str = "tpot_mean_ms"
    error: float = 0.0

    def __post_init__(self) -> None:
        if self.metric not in METRICS:
            raise InputError(f"unknown metric {self.metric!r}; known are {', '.join(METRICS)}")
        for cell in self.cells:
            cell.policy(self.baseline)
            if len({policy.label for policy in cell.policies}) < len(cell.policies):
                raise InputError(f"load {cell.load}: two policies have the same label; give each its own")
            if len({len(policy.runs) for policy in cell.policies}) > 1:
                raise InputError(f"load {cell.load}: policies have different numbers of seeds")


@dataclass(frozen=True)
class Difference:
    """One policy against another in one metric: ``mean`` +- ``half_width`` over ``pairs`` seeds.

    ``ratio`` is the ratio of the means and ``ratio_half_width`` its half width; widths are NaN
    with fewer than two pairs. The intervals cover 95 %, by Student's t with pairs - 1 degrees.
    """

    metric: str
    pairs: int
    mean: float
    half_width: float
    ratio: float
    ratio_half_width: float
    verdict: Verdict


def paired_difference(
    metric: str, baseline: Sequence[float], policy: Sequence[float], error: float = 0.0
) -> Difference:
    """Difference of ``policy`` from ``baseline``, values of equal seeds at equal places.

    Pairs with a NaN are left out. The ratio's interval is that of the classical ratio estimator,
    from the residuals policy - ratio x baseline (Cochran, Sampling Techniques, 1977, section 6.4).
    """
    base, other = _finite_pairs(baseline, policy)
    pairs, unknown = len(base), float("nan")
    if pairs == 0:
        return Difference(metric, 0, unknown, unknown, unknown, unknown, "no data")
    mean, half_width = float((other - base).mean()), _half_width(other - base)
    level = float(base.mean())
    ratio = float(other.mean()) / level if level else unknown
    ratio_half_width = _half_width(other - ratio * base) / abs(level) if level else unknown
    verdict = _verdict(metric, mean, half_width, ratio, error)
    return Difference(metric, pairs, mean, half_width, ratio, ratio_half_width, verdict)


def against(cell: Cell, baseline: str, metric: str, error: float = 0.0) -> tuple[Difference | None, ...]:
    """Each policy of a cell against ``baseline``; ``None`` where either of the two is unstable."""
    base = cell.policy(baseline)
    return tuple(
        None if base.unstable or policy.unstable else _between(base, policy, metric, error)
        for policy in cell.policies
    )


@dataclass(frozen=True)
class Best:
    """The best policy of a cell (``None`` if none is stable) and those no worse than it, in table order.

    ``even`` contains the best itself. With one seed nothing is known about chance, and only equal
    values or the profile's error make policies even.
    """

    label: str | None
    even: tuple[str, ...]


def best_policy(cell: Cell, metric: str, error: float = 0.0) -> Best:
    """Best stable policy in one metric, bounds left out.

    Raises ``InputError`` for a metric of which neither direction is better.
    """
    better = METRICS[metric].better
    if better is None:
        raise InputError(f"metric {metric!r} has no better direction; choose another to decide by")
    sign = 1.0 if better == "lower" else -1.0
    candidates = [p for p in cell.policies if not p.bound and not np.isnan(p.mean(metric))]
    if not candidates:
        return Best(None, ())
    best = min(candidates, key=lambda policy: sign * policy.mean(metric))
    even = [p.label for p in candidates if p is best or _is_even(best, p, metric, error)]
    return Best(best.label, tuple(even))


def _is_even(best: PolicyResult, policy: PolicyResult, metric: str, error: float) -> bool:
    return _between(best, policy, metric, error).verdict == "no difference"


def _between(base: PolicyResult, policy: PolicyResult, metric: str, error: float) -> Difference:
    return paired_difference(metric, base.values(metric).tolist(), policy.values(metric).tolist(), error)


def _finite_pairs(
    baseline: Sequence[float], policy: Sequence[float]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    base, other = np.asarray(baseline, dtype=np.float64), np.asarray(policy, dtype=np.float64)
    known = np.isfinite(base) & np.isfinite(other)
    return base[known], other[known]


def _half_width(values: NDArray[np.float64]) -> float:
    """Half width of the 95 % t interval of a mean; NaN with fewer than two values."""
    if len(values) < 2:
        return float("nan")
    # stdtrit is the quantile behind scipy.stats.t.ppf, without the import of all of scipy.stats.
    quantile = stdtrit(len(values) - 1, (1 + CONFIDENCE) / 2)
    return float(quantile * values.std(ddof=1) / np.sqrt(len(values)))


def _verdict(metric: str, mean: float, half_width: float, ratio: float, error: float) -> Verdict:
    if mean == 0 or abs(mean) <= half_width or abs(ratio - 1) < error:
        return "no difference"
    if np.isnan(half_width):
        return "one seed"
    better = METRICS[metric].better
    if better is None:
        return "differs"
    return "better" if (mean < 0) == (better == "lower") else "worse"
