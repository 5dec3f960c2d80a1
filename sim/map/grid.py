"""A coarse grid of boxes, and which of them are halved: those whose corners want different policies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise, product

from sim.map.model import At, Axis, Box, Choice, Point

Compute = Callable[[Sequence[At]], Iterable[Point]]


def coarse_points(axes: Sequence[Axis]) -> list[At]:
    """Every combination of the axes' values, the last axis fastest."""
    return list(product(*(axis.values for axis in axes)))


def coarse_boxes(axes: Sequence[Axis]) -> list[Box]:
    """The boxes between neighbouring values; an axis with one value has no width."""
    sides = [list(pairwise(axis.values)) or [(axis.values[0], axis.values[0])] for axis in axes]
    return [Box(tuple(s[0] for s in each), tuple(s[1] for s in each)) for each in product(*sides)]


def halves(box: Box, axes: Sequence[Axis], along: Sequence[bool]) -> tuple[Box, ...]:
    """The boxes that a box falls into when it is halved along some axes; itself alone if none can be."""
    sides = []
    for axis, low, high, wanted in zip(axes, box.low, box.high, along, strict=True):
        middle = axis.middle(low, high) if wanted and low < high else None
        sides.append([(low, high)] if middle is None else [(low, middle), (middle, high)])
    parts = product(*sides)
    return tuple(Box(tuple(s[0] for s in p), tuple(s[1] for s in p), box.level + 1) for p in parts)


def disagreement(box: Box, points: Mapping[At, Point], baseline: str) -> tuple[bool, ...]:
    """The axes along which a box has to be halved; none if its corners agree.

    Corners agree if one policy and one depth are best or even at all of them, and if the baseline is so
    at all of them or at none.

    They are those with an edge whose ends disagree, or all where only corners farther apart do.
    """
    if not _disagree([points[at] for at in box.corners], baseline):
        return (False,) * len(box.low)
    along = tuple(
        any(_disagree([points[at], points[_moved(at, i, box.high)]], baseline) for at in box.corners)
        for i in range(len(box.low))
    )
    return along if any(along) else (True,) * len(box.low)


def _moved(at: At, axis: int, to: At) -> At:
    return (*at[:axis], to[axis], *at[axis + 1 :])


def _disagree(corners: Sequence[Point], baseline: str) -> bool:
    policies, depths = [point.policy for point in corners], [point.depth for point in corners]
    matters = {baseline in choice.even for choice in policies}
    return len(matters) > 1 or _differ(policies) or _differ(depths)


def _differ(choices: Sequence[Choice]) -> bool:
    """Whether none is best or even everywhere."""
    everywhere = set(choices[0].even).intersection(*(choice.even for choice in choices))
    return not everywhere and any(choice.even for choice in choices)


def refined(
    axes: Sequence[Axis],
    boxes: Sequence[Box],
    known: Mapping[At, Point],
    budget: int,
    baseline: str,
    compute: Compute,
) -> tuple[list[Box], dict[At, Point]]:
    """Boxes and points after halving boxes that disagree, the largest first, with ``budget`` new points.

    Points that are known are never computed again.
    """
    boxes, points = list(boxes), dict(known)
    while True:
        asked = _to_halve(axes, boxes, points, budget, baseline)
        new = list(dict.fromkeys(at for parts in asked.values() for at in _missing(parts, points)))
        if not asked:
            return boxes, points
        budget -= len(new)
        points |= {point.at: point for point in compute(new)}
        boxes = [part for box in boxes for part in asked.get(box, (box,))]


def _to_halve(
    axes: Sequence[Axis], boxes: Sequence[Box], points: Mapping[At, Point], budget: int, baseline: str
) -> dict[Box, tuple[Box, ...]]:
    """Boxes of the coarsest level that disagree, with their halves, as many as the budget allows."""
    candidates = [(box, halves(box, axes, disagreement(box, points, baseline))) for box in boxes]
    candidates = [(box, parts) for box, parts in candidates if len(parts) > 1]
    level = min((box.level for box, _ in candidates), default=0)
    asked: dict[Box, tuple[Box, ...]] = {}
    new: set[At] = set()
    for box, parts in candidates:
        wanted = new | set(_missing(parts, points))
        if box.level == level and len(wanted) <= budget:
            asked[box], new = parts, wanted
    return asked


def _missing(parts: Iterable[Box], points: Mapping[At, Point]) -> list[At]:
    return list(dict.fromkeys(at for part in parts for at in part.corners if at not in points))
