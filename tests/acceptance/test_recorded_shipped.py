"""Shipped recordings say what they are, and the simulator replays what they say."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from sim.acceptance.build import build_process
from sim.errors import InputError
from sim.scenario import catalogue
from tests.acceptance.heldout import LOGGED, fitted, halves, per_request, seen
from tests.acceptance.helpers import configure
from tests.acceptance.recorded_page import described, description

NAMES = tuple(catalogue.shipped("acceptance"))
PAIRS = tuple(name for name in NAMES if "pair" in name)
BLOCKS = tuple(name for name in NAMES if "block" in name)


def test_the_pair_is_recorded_greedy_and_sampled_and_a_block_drafter_beside_it() -> None:
    """At least; each has a line for lists."""
    assert {"byte-pair-greedy", "byte-pair-t0.7", "byte-pair-t1"} <= set(PAIRS)
    assert BLOCKS
    assert all(catalogue.described("acceptance").values())


@pytest.mark.parametrize("name", NAMES)
def test_a_recording_is_small_and_states_its_origin(name: str) -> None:
    """What measured it, when, and by which command."""
    about = description(catalogue.shipped("acceptance")[name])
    assert about["bytes"] <= 160_000
    assert about["kind"] == "measured"
    assert about["made"]["command"].startswith("leadline calibrate record-acceptance")
    assert all(about["made"][key] for key in ("date", "torch", "python", "device"))


@pytest.mark.parametrize("name", NAMES)
def test_the_simulator_expects_what_the_recorder_computed(name: str) -> None:
    """Two implementations of the exact mean; and both lie within luck of real decoding."""
    about = description(catalogue.shipped("acceptance")[name])
    depths = {int(depth): mean for depth, mean in about["statistics"]["tokens_per_round"].items()}
    config = configure(process="trace", path=name)
    process = build_process(config, 0, max(depths), lambda each: catalogue.locate("acceptance", each, Path()))
    for depth, mean in depths.items():
        assert process.expected_tokens_per_round(depth) == pytest.approx(mean, rel=2e-3)
        found = about["check"][str(depth)]
        assert abs(found["difference_percent"]) < max(0.3, 4 * found["standard_error_percent"])


@pytest.mark.parametrize("name", NAMES)
def test_survivors_get_better_with_depth(name: str) -> None:
    """From any start: whoever has come far is in an easy stretch, also where drafts get worse."""
    found = description(catalogue.shipped("acceptance")[name])["statistics"]
    assert found["conditional_from_any_start"][-1] > found["conditional_from_any_start"][0]
    by_draft = found["mean_chance_by_draft"]
    assert by_draft == sorted(by_draft, reverse=True)
    assert (by_draft[-1] < 0.8 * by_draft[0]) == (name in BLOCKS)


@pytest.mark.parametrize("name", NAMES)
def test_top_probability_is_timid_and_no_temperature_mends_it(name: str) -> None:
    """Acceptance is higher than claimed; a slope and a shift, fitted on other requests, mend that."""
    told = description(catalogue.shipped("acceptance")[name])["statistics"]["confidence"]
    assert 0.6 < told["auc"] < 1
    assert told["ece_at_temperature"] > 0.8 * told["ece"]
    assert told["ece_on_line"] < 0.5 * told["ece"]


def test_the_page_shows_what_stands_beside_the_traces() -> None:
    """Every table but the study's, which takes half a minute."""
    text = (Path(__file__).parents[2] / "docs" / "recorded-acceptance.md").read_text(encoding="utf-8")
    for name, part in described().items():
        assert part in text, f"{name}: run python -m tests.acceptance.recorded_page"


def test_requests_differ_more_than_luck_and_iid_does_not_know() -> None:
    """Greedy: fitted on half of the requests, iid loses a quarter or more of the spread of the other
    half, the recording itself less than a quarter."""
    known, unknown = halves("byte-pair-greedy")
    true = seen(unknown)
    spread = {
        process: np.std(per_request(fitted(process, known), 1000, known[0].positions))
        for process in ("iid", "trace")
    }
    assert spread["iid"] < 0.75 * true.sd
    assert 0.75 < spread["trace"] / true.sd < 1.25


@pytest.mark.parametrize("name", PAIRS)
def test_one_half_of_a_recording_predicts_the_other(name: str) -> None:
    """Mean tokens per round, within four standard errors."""
    about = description(catalogue.shipped("acceptance")[name])
    first, second = halves(name)
    error = about["statistics"]["standard_error"][str(LOGGED)]
    difference = seen(first).mean[2] - seen(second).mean[2]
    assert abs(difference) < 4 * 2 * error  # each half has twice the variance, their difference four times


def test_a_misspelt_recording_is_met_with_the_nearest_name() -> None:
    """Like any other shipped name; a path that is none counts from the scenario's folder."""
    with pytest.raises(
        InputError, match="no acceptance trace 'byte-pair-gredy'; did you mean 'byte-pair-greedy'"
    ):
        catalogue.locate("acceptance", "byte-pair-gredy", Path())
    with pytest.raises(InputError, match=r"no file 'mine\.jsonl\.gz'"):
        catalogue.locate("acceptance", "mine.jsonl.gz", Path())


def test_descriptions_are_complete() -> None:
    """Every recording has its description and every description its recording."""
    folder = catalogue.shipped("acceptance")["byte-pair-greedy"].parent
    described = {path.stem for path in folder.glob("*.json")}
    assert described == set(NAMES)
    assert all(json.loads((folder / f"{name}.json").read_text())["title"] for name in NAMES)
