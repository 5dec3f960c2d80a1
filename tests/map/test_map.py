"""Laws of a map: no acceptance, no gain; refining and workers change nothing that is there."""

from __future__ import annotations

import json
import math
import os
from dataclasses import replace
from pathlib import Path

import pytest

from sim.errors import InputError
from sim.map import file, read, runs, write
from sim.map.axes import wanted_axes
from sim.map.make import build, plan_of
from sim.map.model import At, Axis, Choice, Figures, Map, Point
from sim.map.table import grid, markdown, policy_text, tables
from sim.scenario.load import find_scenario, load_scenario
from sim.scenario.model import Scenario
from tests.map.conftest import small_map


def test_without_acceptance_off_is_best_or_even_everywhere(small: Map) -> None:
    nothing = [point for point in small.points if point.at[1] == 0]
    assert nothing
    assert all("off" in point.policy.even for point in nothing)
    assert all(0 in {small.depth_of(label) for label in point.depth.even} for point in nothing)


def test_depth_zero_is_off_itself(small: Map) -> None:
    assert small.depths[0] == "off"


def test_plain_decoding_does_not_depend_on_acceptance(small: Map) -> None:
    by_load: dict[float, set[float]] = {}
    for point in small.points:
        by_load.setdefault(point.at[0], set()).add(point.policies["off"].mean)
    for load, means in by_load.items():
        # One warm-up is cut for all policies of a point, so windows differ a little.
        assert max(means) == pytest.approx(min(means), rel=0.05), load


def test_alone_with_high_acceptance_speculation_wins(small: Map) -> None:
    best = next(point for point in small.points if point.at == (1.0, 0.9))
    assert "off" not in best.policy.even
    assert best.policy.margin > 0
    assert best.policy.over == "off"


def test_refinement_changes_no_point_that_was_there(small: Map, small_scenario: Scenario) -> None:
    coarse = small_map(small_scenario, refine=0)
    assert len(coarse.points) == 6
    there = {point.at: point for point in small.points}
    for point in coarse.points:
        assert repr(there[point.at]) == repr(point)


def test_more_workers_give_the_same_bytes(small: Map, small_scenario: Scenario, tmp_path: Path) -> None:
    for name, found in (("one", small), ("two", small_map(small_scenario, jobs=2))):
        write(tmp_path / name, found)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_a_map_is_read_back_as_it_was_written(small: Map, tmp_path: Path) -> None:
    write(tmp_path / "map.json", small)
    again = read(tmp_path / "map.json")
    assert file.to_data(again) == file.to_data(small)
    data = json.loads((tmp_path / "map.json").read_text())
    assert data["schema"] == "leadline.map/1"
    assert {"at", "policies", "best", "even", "margin"} <= set(data["points"][0])


def test_a_file_that_is_no_map_is_refused(tmp_path: Path) -> None:
    (tmp_path / "map.json").write_text('{"schema": "leadline.map/1"}')
    with pytest.raises(InputError, match="no map that this version reads"):
        read(tmp_path / "map.json")


def test_the_plan_has_every_fixed_depth_once_and_no_bound() -> None:
    plan = plan_of(load_scenario(find_scenario("azure-conversation")))
    titles = [policy.title for policy in plan.policies]
    assert len(titles) == len(set(titles))
    assert list(plan.depths) == [0, 1, 2, 3, 5]
    assert not any("oracle" in title for title in titles)


def test_tables_name_every_axis_value_and_mark_even_ones(small: Map) -> None:
    text = markdown(small)
    assert all(f"c={value:g}" in text for value in small.axes[0].values)
    assert len(tables(small)) == 2
    even = [point for point in small.points if len(point.policy.even) > 1 and "off" in point.policy.even]
    assert all(policy_text(small, point) == "off =" for point in even)
    assert not math.isnan(small.points[0].policy.margin)


def _point(at: At, means: dict[str, float], even: tuple[str, ...], best: str, margin: float) -> Point:
    figures = {
        label: Figures(mean, 0.0, 1.0, 1.0, 1.0, 1.0, math.isnan(mean)) for label, mean in means.items()
    }
    choice = Choice(best, even, margin, 0.01, None if math.isnan(margin) else "off")
    return Point(at, figures, choice, choice, math.nan, 0.0)


def _map_of(small: Map, points: tuple[Point, ...]) -> Map:
    axis = Axis("load", "in flight", tuple(point.at[0] for point in points))
    labels = ("off", "a", "b")
    return replace(
        small, axes=(axis,), policies=labels, depths={0: "off"}, points=points, metric="tpot_mean_ms"
    )


def test_a_policy_is_shown_with_its_own_gain(small: Map) -> None:
    means = {"off": 10.0, "a": 8.0, "b": 7.9}
    often = _point((1.0,), means, ("a",), "a", 0.2)
    both = _point((2.0,), means, ("a", "b"), "b", 0.21)
    unstable = _point((3.0,), means | {"off": math.nan}, ("a", "b"), "b", math.nan)
    found = _map_of(small, (often, both, unstable))
    assert [policy_text(found, point) for point in found.points] == ["a +20 %", "a +20 %", "a"]


def test_one_axis_has_a_name_for_each_row(small: Map) -> None:
    means = {"off": 10.0, "a": 8.0, "b": 7.9}
    found = _map_of(small, (_point((1.0,), means, ("b",), "b", 0.21),))
    assert grid(found, policy_text) == (["load", "c=1"], [["best", "b +21 %"]])


def test_several_replicas_are_refused(small_scenario: Scenario) -> None:
    fleet = small_scenario.fleet.model_copy(update={"replicas": 2})
    with pytest.raises(InputError, match="remove fleet"):
        build(small_scenario.model_copy(update={"fleet": fleet}), wanted_axes(["load"], {}, {"load": 2}))


def test_a_dead_worker_is_told_with_advice(small_scenario: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "run_group", _die)
    with (
        pytest.raises(InputError, match="fewer --jobs"),
        runs.workers(small_scenario, (), 2) as run_groups,
    ):
        list(run_groups([runs.Group((), 0)]))


def _die(*_: object) -> None:
    os._exit(1)
