"""Recorded traces replay as they were recorded, and bad ones say where they are bad."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.acceptance.build import build_process
from sim.acceptance.survey import Survey
from sim.acceptance.trace import read_trace
from sim.errors import InputError, TraceError
from tests.acceptance.helpers import build, configure, walk

ROWS: list[dict[str, object]] = [
    {"accepted": [3, 2, 1, 0, 5, 4]},
    {"accepted": [0, 1, 0]},
    {"accepted": [2, 2]},
]


def write(path: Path, rows: list[dict[str, object]]) -> str:
    """A trace file of ``rows``."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.fixture
def trace(tmp_path: Path) -> str:
    """Path of a small trace."""
    return write(tmp_path / "trace.jsonl", ROWS)


def test_paths_are_the_recorded_lists(trace: str) -> None:
    """In order, request r replays row r, tiled over a longer output and capped at the depth."""
    process = build(8, process="trace", path=trace, assign="in_order")
    assert process.path(0, 1, 6).run.tolist() == [3, 2, 1, 0, 5, 4]
    assert process.path(1, 1, 7).run.tolist() == [0, 1, 0, 0, 1, 0, 0]
    assert process.path(5, 1, 1).run.tolist() == [2]
    assert build(2, process="trace", path=trace, assign="in_order").path(0, 1, 6).run.tolist() == [
        2,
        2,
        1,
        0,
        2,
        2,
    ]


def test_drawn_rows_are_even_and_depend_on_the_seed(trace: str) -> None:
    """Each row is drawn about equally often, and another seed draws others."""
    lengths = {6: 0, 3: 0, 2: 0}
    process = build(8, process="trace", path=trace)
    other = build(8, seed=2, process="trace", path=trace)
    first = [process.path(r, 1, 6).run.tolist() for r in range(3000)]
    for run in first:
        lengths[6 if run[4:] == [5, 4] else 3 if run[0] == 0 else 2] += 1
    assert all(abs(count - 1000) < 4 * np.sqrt(3000 * 2 / 9) for count in lengths.values())
    assert first[:50] != [other.path(r, 1, 6).run.tolist() for r in range(50)]


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=30), min_size=1, max_size=5), st.integers(0, 9)
)
def test_expected_tokens_are_those_of_walking_every_row(rows: list[list[int]], depth: int) -> None:
    """Total tokens over total rounds of fixed-depth walks, last rounds whole."""
    survey = Survey([np.array(row, dtype=np.uint8) for row in rows])
    rounds = [one for row in rows for one in walk(row, lambda *_: depth)]
    expected = sum(a + 1 for _, a in rounds) / len(rounds)
    assert survey.tokens_per_round(depth).mean == pytest.approx(expected)


def test_a_trace_expects_the_tokens_of_its_rows(trace: str) -> None:
    """By hand at depth 2: rows walk as (2 0 2), (0 1), (2), and each adds its bonus."""
    process = build(8, process="trace", path=trace)
    assert process.expected_tokens_per_round(2) == pytest.approx((3 + 1 + 3 + 1 + 2 + 3) / 6)


def test_spans_count_the_bonus(tmp_path: Path) -> None:
    """SpecDecode-Bench lists, flat or nested, hold spans: accepted drafts and one more."""
    nested = write(
        tmp_path / "a.jsonl", [{"id": "7", "acc_eagle": {"acc_len": [1, 5, 4]}, "acc_ngram": [1, 2, 9]}]
    )
    assert build(8, process="trace", path=nested).path(0, 1, 3).run.tolist() == [0, 4, 3]
    assert build(8, process="trace", path=nested, span_key="acc_ngram").path(0, 1, 3).run.tolist() == [
        0,
        1,
        8,
    ]


def test_recorded_confidence_is_replayed(tmp_path: Path) -> None:
    """Recorded claims come back, tiled; deeper drafts than recorded claim nothing."""
    path = write(tmp_path / "c.jsonl", [{"accepted": [1, 0], "confidence": [[0.9, 0.25], [0.5, 0.125]]}])
    claims = build(3, process="trace", path=path).path(0, 1, 3).confidence()
    assert claims == pytest.approx(np.array([[0.9, 0.25, 0], [0.5, 0.125, 0], [0.9, 0.25, 0]]))


def test_stated_confidence_replaces_a_recorded_one(tmp_path: Path) -> None:
    """A blind drafter claims the trace's own acceptance by depth: here 3 of 4 starts, then 1 of 3."""
    rows: list[dict[str, object]] = [{"accepted": [1, 2, 0, 1], "confidence": [[0.1]] * 4}]
    path = write(tmp_path / "c.jsonl", rows)
    claims = build(2, process="trace", path=path, confidence={"auc": 0.5}).path(0, 1, 4).confidence()
    assert claims == pytest.approx(np.tile([3 / 4, 1 / 3], (4, 1)))


def test_decay_thins_a_recorded_run(tmp_path: Path) -> None:
    """At one half-life a recorded run of 1 survives half the time, and never grows."""
    path = write(tmp_path / "d.jsonl", [{"accepted": [1]}])
    process = build(4, process="trace", path=path, decay={"from_tokens": 0, "half_life_tokens": 1e6})
    run = process.path(0, 1_000_000, 4000).run
    assert run.max() == 1
    assert abs(run.mean() - 0.5) < 4 * 0.5 / np.sqrt(4000) + 0.002


def test_a_recording_says_nothing_beyond_its_depth(tmp_path: Path) -> None:
    """A depth the trace cannot answer for is refused, whether row or scenario states it."""
    stated = write(tmp_path / "e.jsonl", [{"accepted": [1], "depth": 3}])
    with pytest.raises(InputError, match="recorded at depth 3"):
        build(4, process="trace", path=stated)
    silent = write(tmp_path / "f.jsonl", [{"accepted": [1]}])
    with pytest.raises(InputError, match="recorded at depth 2"):
        build(4, process="trace", path=silent, recorded_depth=2)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "Expecting property name"),
        ("[1, 2]", "a row is an object"),
        ('{"spans": [1]}', "neither 'accepted' nor 'chance' nor 'acc_eagle'; it has spans"),
        ('{"accepted": []}', "at least one whole number"),
        ('{"accepted": 3}', "at least one whole number"),
        ('{"accepted": [1, 2.5]}', r"accepted\[1\] is 2.5"),
        ('{"accepted": [true]}', r"accepted\[0\] is True"),
        ('{"accepted": [0, -1]}', r"accepted\[1\] is -1"),
        ('{"accepted": [256]}', r"from 0 to 255"),
        ('{"acc_eagle": [0]}', r"acc_eagle\[0\] is 0; it must be a whole number from 1 to 256"),
        ('{"accepted": [1], "depth": 0}', "depth is 0"),
        ('{"accepted": [1, 1], "confidence": [[0.5]]}', "2 lists of equal length"),
        ('{"accepted": [1, 1], "confidence": [[0.5], [0.5, 0.5]]}', "2 lists of equal length"),
        ('{"accepted": [1], "confidence": [["x"]]}', "1 lists of equal length"),
        ('{"accepted": [1], "confidence": [[1.5]]}', "probabilities from 0 to 1"),
        ('{"accepted": [1], "confidence": [[NaN]]}', "probabilities from 0 to 1"),
    ],
)
def test_a_bad_row_is_named_by_its_line(tmp_path: Path, line: str, message: str) -> None:
    """The message holds the file, the line and what is wrong."""
    path = tmp_path / "bad.jsonl"
    path.write_text('{"accepted": [1]}\n\n' + line + "\n")
    with pytest.raises(TraceError, match=message) as caught:
        read_trace(path)
    assert caught.value.line == 3
    assert str(caught.value).startswith(f"{path}:3: ")


def test_missing_and_empty_traces_are_input_errors(tmp_path: Path) -> None:
    """Neither an absent file nor one without rows is a trace; ``locate`` decides where files are."""
    with pytest.raises(InputError, match="cannot read"):
        build_process(configure(process="trace", path="x.jsonl"), 0, 4, lambda name: tmp_path / name)
    (tmp_path / "x.jsonl").write_text("\n")
    with pytest.raises(InputError, match="no rows"):
        build_process(configure(process="trace", path="x.jsonl"), 0, 4, lambda name: tmp_path / name)


def test_claims_behind_a_recorded_rejection_give_nothing_away(tmp_path: Path) -> None:
    """What a trace cannot know is drawn at the trace's rate: the mean claim there is the mean claim."""
    luck = np.random.default_rng(1).random((20_000, 2)) < 0.6
    runs = np.where(luck[:, 0], 1 + luck[:, 1], 0).tolist()
    path = write(tmp_path / "g.jsonl", [{"accepted": runs}])
    drawn = build(2, process="trace", path=path, confidence={"auc": 0.9}).path(0, 1, 20_000)
    claims = drawn.confidence()[:, 1].astype(np.float64)
    kept, behind = claims[drawn.run > 0], claims[drawn.run == 0]
    error = np.hypot(kept.std() / np.sqrt(len(kept)), behind.std() / np.sqrt(len(behind)))
    assert abs(kept.mean() - behind.mean()) < 4 * error
