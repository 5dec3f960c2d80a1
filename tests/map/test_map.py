"""Laws of a map: no acceptance, no gain; refining and workers change nothing that is there."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from sim.errors import InputError
from sim.map import file, read, write
from sim.map.make import plan_of
from sim.map.model import Map
from sim.map.table import markdown, policy_text, tables
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
