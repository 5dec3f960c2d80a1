"""Reading a map anywhere: the explorer's arithmetic, line by line the same in ``explorer.js``.

Inside the smallest box around a place every figure is multilinear between the corners (by the
logarithm on logarithmic axes). The winner is the policy with the best interpolated metric; even are
those within their interpolated half width of it or within the profile's error, which is the rule of
``sim.results.compare`` at simulated points.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sim.map.model import At, Figures, Map, Point
from sim.results.names import METRICS


@dataclass(frozen=True)
class Reading:
    """The map at one place; ``points`` is how many simulated ones it rests on (1: it is one itself).

    ``even_depths`` are the labels of the fixed depths that are best or even among fixed depths alone.
    """

    policies: dict[str, Figures]
    best: str | None
    even: tuple[str, ...]
    even_depths: tuple[str, ...]
    points: int

    @property
    def computed(self) -> bool:
        """Whether this very place was simulated."""
        return self.points == 1


def reading(found: Map, at: At) -> Reading:
    """The map at a place inside its axes; places outside are read at the nearest edge."""
    weights = _weights(found, at)
    policies = {label: _mixed(label, weights) for label in found.policies}
    best, even = best_and_even(found, policies)
    return Reading(policies, best, even, _even_depths(found, policies, weights), len(weights))


def _even_depths(
    found: Map, policies: Mapping[str, Figures], weights: Sequence[tuple[Point, float]]
) -> tuple[str, ...]:
    """A simulated point's own; half widths are against the best of all policies, so elsewhere about it."""
    if len(weights) == 1:
        return weights[0][0].depth.even
    return best_and_even(found, {label: policies[label] for label in found.depths.values()})[1]


def best_and_even(found: Map, policies: Mapping[str, Figures]) -> tuple[str | None, tuple[str, ...]]:
    """The best of some policies and all that are even with it; ``None`` and none if no policy is stable."""
    sign = 1 if METRICS[found.metric].better == "lower" else -1
    stable = [label for label, each in policies.items() if not math.isnan(each.mean)]
    best = min(stable, key=lambda label: sign * policies[label].mean, default=None)
    if best is None:
        return None, ()
    top = policies[best]
    return best, tuple(label for label in stable if label == best or _is_even(found, top, policies[label]))


def enough(found: Map, seen: Reading) -> int | None:
    """The smallest fixed depth that is no worse than the best fixed depth; ``None`` if none is stable."""
    return min((depth for depth, label in found.depths.items() if label in seen.even_depths), default=None)


def gain(found: Map, seen: Reading) -> float:
    """What the best gains over the baseline, or over the next best where the baseline is best; a share.

    NaN where there is nothing stable to compare with.
    """
    if seen.best is None:
        return math.nan
    over = found.baseline
    if seen.best == over:
        others = {label: each for label, each in seen.policies.items() if label != over}
        over = best_and_even(found, others)[0] or over
    ratio = seen.policies[seen.best].mean / seen.policies[over].mean
    return 1 - ratio if METRICS[found.metric].better == "lower" else ratio - 1


def _weights(found: Map, at: At) -> list[tuple[Point, float]]:
    """The corners that count at a place, with their weights."""
    at = tuple(min(max(v, a.values[0]), a.values[-1]) for v, a in zip(at, found.axes, strict=True))
    around = [cell for cell in found.cells if _holds(found, cell, at)]
    cell = min(around, key=lambda cell: _size(found, cell))
    low, high = found.points[cell[0]].at, found.points[cell[-1]].at
    weights = [1.0]
    for axis, value, a, b in zip(found.axes, at, low, high, strict=True):
        if a == b:
            continue
        t = (axis.place(value) - axis.place(a)) / (axis.place(b) - axis.place(a))
        weights = [w * part for w in weights for part in (1 - t, t)]
    return [(found.points[corner], w) for corner, w in zip(cell, weights, strict=True) if w > 0]


def _holds(found: Map, cell: Sequence[int], at: At) -> bool:
    low, high = found.points[cell[0]].at, found.points[cell[-1]].at
    return all(a <= value <= b for a, value, b in zip(low, at, high, strict=True))


def _size(found: Map, cell: Sequence[int]) -> float:
    low, high = found.points[cell[0]].at, found.points[cell[-1]].at
    sides = (axis.place(b) - axis.place(a) for axis, a, b in zip(found.axes, low, high, strict=True) if a < b)
    return math.prod(sides)


def _mixed(label: str, weights: Sequence[tuple[Point, float]]) -> Figures:
    """One policy between points; unstable where it is unstable at one of them."""
    figures = [(point.policies[label], weight) for point, weight in weights]
    unstable = any(each.unstable for each, _ in figures)

    def mixed(name: str) -> float:
        values = (weight * float(getattr(each, name)) for each, weight in figures)
        return math.nan if unstable else sum(values)

    names = ("mean", "half", "depth", "breadth", "step_ms", "acceptance_length")
    mean, half, depth, breadth, step_ms, length = map(mixed, names)
    return Figures(mean, half, depth, breadth, step_ms, length, unstable)


def _is_even(found: Map, best: Figures, other: Figures) -> bool:
    half = 0.0 if math.isnan(other.half) else other.half
    return abs(other.mean - best.mean) <= half or abs(other.mean / best.mean - 1) < found.error
