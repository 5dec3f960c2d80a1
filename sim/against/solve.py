"""Least squares over a few adjustments, with few simulations.

Every number is searched on a scale on which a change of 0.1 is a change of about a tenth: factors by
their logarithm, host time in units of the shortest measured step, acceptance by its log odds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import exp
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from sim.against.adjust import UNCHANGED, Adjustment
from sim.against.bench import Bench
from sim.against.compare import step_ms

Floats = NDArray[np.float64]
Residuals = Callable[[Adjustment], Floats]

_STEP: Final = 0.05  # of numeric derivatives: larger than what chance moves, smaller than any bend
_BOUND: Final = 2.5  # factors of 12 and 1/12; what needs more is another device
_EVALUATIONS: Final = 6
_CLOSE: Final = 0.02  # the search ends when a step is shorter than this share of the way so far
_RIDGE: Final = 0.02  # settles what the runs leave open towards no change, and is lost in data


@dataclass(frozen=True)
class Solution:
    """The best adjustment, its residuals, and the standard error of each searched number on its scale.

    ``correlation`` is the largest between two of them: near 1 the runs cannot tell those two apart.
    """

    adjustment: Adjustment
    residuals: Floats
    errors: tuple[float, ...]
    correlation: float
    alike: tuple[str, ...]


def solve(
    bench: Bench,
    names: Sequence[str],
    residuals: Residuals,
    start: Adjustment = UNCHANGED,
    least_overhead_ms: float | None = None,
) -> Solution:
    """The adjustment of ``names`` that makes the residuals small; all else stays as in ``start``.

    ``least_overhead_ms`` bounds the host time from below; by default half a step may be taken off.
    """
    unit = shortest_step_ms(bench)
    low = np.array([_lowest(name, unit, least_overhead_ms) for name in names])
    high = np.full(len(names), _BOUND)

    def at(theta: Floats) -> Floats:
        return residuals(moved(start, names, theta, unit))

    def with_ridge(theta: Floats) -> Floats:
        return np.concatenate([at(theta), _RIDGE * theta])

    def jacobian(theta: Floats) -> Floats:
        here, steps = with_ridge(theta), np.where(theta + _STEP < high, _STEP, -_STEP)
        columns = [
            (with_ridge(theta + s * e) - here) / s for s, e in zip(steps, np.eye(len(names)), strict=True)
        ]
        return np.stack(columns, axis=1)

    origin = np.clip(np.zeros(len(names)), low, high)
    found = least_squares(
        with_ridge,
        origin,
        jacobian,
        bounds=(low, high),
        method="dogbox",  # trf hardly moves from a start at a bound, where host time begins
        max_nfev=_EVALUATIONS,
        xtol=_CLOSE,
    )
    return _solution(start, names, unit, np.asarray(found.x), at, np.asarray(found.jac))


def _solution(
    start: Adjustment,
    names: Sequence[str],
    unit: float,
    theta: Floats,
    at: Callable[[Floats], Floats],
    jac: Floats,
) -> Solution:
    covariance = np.linalg.pinv(jac.T @ jac)
    errors = np.sqrt(np.diag(covariance))
    scaled = np.abs(covariance / np.outer(errors, errors) - np.eye(len(names)))
    first, second = divmod(int(scaled.argmax()), len(names))
    alike = (names[first], names[second]) if len(names) > 1 else ()
    best = moved(start, names, theta, unit)
    return Solution(best, at(theta), tuple(errors.tolist()), float(scaled.max()), alike)


def moved(start: Adjustment, names: Sequence[str], theta: Floats, unit_ms: float) -> Adjustment:
    """The adjustment at a point of the search."""
    by = dict(zip(names, theta.tolist(), strict=True))
    return replace(
        start,
        overhead_ms=start.overhead_ms + by.get("overhead", 0.0) * unit_ms,
        verify=start.verify * exp(by.get("verify", 0.0)),
        draft=start.draft * exp(by.get("draft", 0.0)),
        acceptance=start.acceptance + by.get("acceptance", 0.0),
    )


def _lowest(name: str, unit_ms: float, least_overhead_ms: float | None) -> float:
    if name != "overhead":
        return -_BOUND
    return -0.5 if least_overhead_ms is None else least_overhead_ms / unit_ms


def shortest_step_ms(bench: Bench) -> float:
    """The shortest measured step, or simulated where no file tells one."""
    found = []
    for number, run in enumerate(bench.runs):
        simulated = bench.simulated(number).mean
        found.append(step_ms(bench, number, run.metrics) or simulated["itl_mean_ms"])
    return min(found)
