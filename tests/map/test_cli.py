"""``leadline map``: prints the map, writes its files, and refuses what it cannot do with every reason."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from sim.errors import InputError
from sim.map import read
from sim.map.axes import wanted_axes
from sim.map.cli import app

SCENARIO = """
profile: qwen3.5-27b-h200
drafter: mtp
acceptance: {process: iid, alpha: 0.6}
workload:
  arrival: {process: ARRIVAL}
  lengths: {input: 32, output: 32}
  num_requests: 50
engine: {max_num_seqs: 32}
policies: [off, {policy: static, k: 1}]
run: {max_depth: 1}
"""
CLOSED = SCENARIO.replace("ARRIVAL", "closed, max_concurrency: 4")
OPEN = SCENARIO.replace("ARRIVAL", "poisson, request_rate: 4/s")


def called(folder: Path, text: str, *options: str) -> tuple[int, str, BaseException | None]:
    path = folder / "s.yaml"
    path.write_text(text)
    result = CliRunner().invoke(app, [str(path), "--jobs", "1", *options])
    return result.exit_code, result.output, result.exception


def test_it_prints_the_map_and_writes_its_files(tmp_path: Path) -> None:
    options = ("--to", "load=4", "--points", "load=2", "--points", "acceptance=2", "--refine", "1")
    code, output, _ = called(tmp_path, CLOSED, *options, "--seeds", "2", "--out", str(tmp_path / "out"))
    assert code == 0, output
    assert "best policy by TPOT mean" in output
    found = read(tmp_path / "out" / "map.json")
    assert [axis.values for axis in found.axes] == [(1.0, 4.0), (0.3, 0.9)]
    assert found.about["seeds"] == [0, 1]
    assert {"map.json", "map.md", "explorer.html"} <= {path.name for path in (tmp_path / "out").iterdir()}


def test_rates_are_relative_to_the_plain_capacity_where_nothing_is_said(tmp_path: Path) -> None:
    options = ("--over", "load", "--points", "load=2", "--refine", "0", "--seeds", "1")
    for share, name in (("50%", "half"), ("25%", "quarter")):
        ends = ("--from", "load=10%", "--to", f"load={share}", "--out", str(tmp_path / name))
        assert called(tmp_path, OPEN, *options, *ends)[0] == 0
    half, quarter = (read(tmp_path / name / "map.json").axes[0] for name in ("half", "quarter"))
    assert half.unit == quarter.unit == "/s"
    assert half.values[1] == pytest.approx(2 * quarter.values[1], rel=0.01)


def test_lengths_make_the_load_a_share_of_what_the_replica_takes_at_them(tmp_path: Path) -> None:
    options = ("--over", "load,output", "--points", "load=1", "--points", "output=2", "--refine", "0")
    assert called(tmp_path, OPEN, *options, "--seeds", "1", "--out", str(tmp_path / "out"))[0] == 0
    found = read(tmp_path / "out" / "map.json")
    short, long = found.points
    assert found.axes[0].unit == "share"
    assert short.at[1] < long.at[1]
    assert short.rate_per_s > 2 * long.rate_per_s


def test_every_wrong_axis_is_named_at_once() -> None:
    with pytest.raises(InputError) as caught:
        wanted_axes(["lod", "load", "load"], {"context": ("1", "2")}, {})
    message = str(caught.value)
    assert "did you mean 'load'" in message
    assert "named twice" in message
    assert "context is not among the axes" in message


@pytest.mark.parametrize(
    ("ends", "reason"),
    [
        ({"acceptance": ("0.2", "1.5")}, "share from 0 to 1"),
        ({"acceptance": ("10%", "50%")}, "only a load may be given in %"),
        ({"load": ("8", "2")}, "not below"),
        ({"load": ("10%", "4/s")}, "both ends in %"),
        ({"load": ("0", "4")}, "above 0"),
        ({"load": ("many", "")}, "no number"),
    ],
)
def test_ends_that_are_no_range_are_refused(ends: dict[str, tuple[str, str]], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        wanted_axes(["load", "acceptance"], ends, {})


def test_a_closed_loop_has_no_share_of_capacity(tmp_path: Path) -> None:
    code, _, error = called(tmp_path, CLOSED, "--to", "load=80%")
    assert code != 0
    assert isinstance(error, InputError)
    assert "requests in flight" in str(error)


def test_explore_and_over_are_not_taken_together(tmp_path: Path) -> None:
    code, _, error = called(tmp_path, CLOSED, "--explore", "--over", "load")
    assert code != 0
    assert isinstance(error, InputError)
    assert "one of the two" in str(error)


def test_a_folder_that_cannot_be_made_is_told_before_anything_is_simulated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(*_: object, **__: object) -> None:
        pytest.fail("simulated")

    monkeypatch.setattr("sim.map.make.build", build)
    (tmp_path / "file").write_text("")
    code, _, error = called(tmp_path, CLOSED, "--out", str(tmp_path / "file" / "out"))
    assert code != 0
    assert isinstance(error, InputError)
    assert "cannot be made" in str(error)
