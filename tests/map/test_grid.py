"""The grid: boxes cover the axes, and halving them adds points without touching those that are known."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from sim.map.grid import coarse_boxes, coarse_points, halves, refined
from sim.map.model import At, Axis, Box, Choice, Figures, Point

LOAD = Axis("load", "in flight", (1.0, 16.0, 256.0))
RATE = Axis("acceptance", "", (0.0, 0.5, 1.0))


def point(at: At, best: str) -> Point:
    choice = Choice(best, (best,), 0.1, 0.01, "off")
    figures = {best: Figures(1.0, 0.0, 1.0, 1.0, 1.0, 1.0, False)}
    return Point(at, figures, choice, choice, math.nan, 0.0)


class World:
    """The best policy changes on the line load = 40; every call is written down."""

    def __init__(self) -> None:
        self.asked: list[At] = []

    def __call__(self, ats: Sequence[At]) -> list[Point]:
        self.asked += ats
        return [point(at, "a" if at[0] < 40 else "b") for at in ats]


def area(box: Box) -> float:
    sides = zip((LOAD, RATE), box.low, box.high, strict=True)
    return math.prod(axis.place(high) - axis.place(low) for axis, low, high in sides)


def run(budget: int) -> tuple[World, list[Box], dict[At, Point], dict[At, Point]]:
    world, axes = World(), (LOAD, RATE)
    coarse = {each.at: each for each in world(coarse_points(axes))}
    boxes, points = refined(axes, coarse_boxes(axes), coarse, budget, "off", world)
    return world, boxes, coarse, points


@pytest.mark.parametrize("budget", [0, 1, 3, 10, 40])
def test_refinement_never_computes_a_point_twice_nor_changes_one(budget: int) -> None:
    world, _, coarse, points = run(budget)
    assert len(world.asked) == len(set(world.asked))
    assert all(points[at] is known for at, known in coarse.items())
    assert len(points) <= len(coarse) + budget


@pytest.mark.parametrize("budget", [0, 7, 40])
def test_boxes_cover_the_map_once_and_stand_on_points(budget: int) -> None:
    _, boxes, _, points = run(budget)
    assert sum(map(area, boxes)) == pytest.approx(math.log(256.0) * 1.0, rel=1e-4)
    assert all(corner in points for box in boxes for corner in box.corners)


def test_a_boundary_across_one_axis_is_halved_along_that_axis_alone() -> None:
    _, _, _, points = run(60)
    assert {at[1] for at in points} == {0.0, 0.5, 1.0}
    loads = sorted({at[0] for at in points})
    assert {39.0, 40.0} & set(loads)


def test_requests_in_flight_are_whole_and_are_not_halved_beyond_that() -> None:
    assert halves(Box((2.0,), (3.0,)), (LOAD,), (True,)) == (Box((2.0,), (3.0,)),)
    assert halves(Box((1.0,), (16.0,)), (LOAD,), (True,)) == (Box((1.0,), (4.0,)), Box((4.0,), (16.0,)))
