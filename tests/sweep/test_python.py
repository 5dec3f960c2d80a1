"""What the command line does can be done from Python, and frames hold what the runs gave."""

from __future__ import annotations

import doctest
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import sim
import sim.api
from sim.cli import app
from sim.errors import InputError, ScenarioError
from sim.results.words import footnote
from sim.scenario.model import Scenario
from sim.sweep import Results, run_scenario
from sim.sweep.frames import Table
from tests.sweep.coverage import coverage
from tests.sweep.support import RUNS, SMALL, small

PAGE = Path(__file__).resolve().parents[2] / "docs" / "python.md"


@pytest.fixture(scope="module")
def results() -> Results:
    return sim.api.run(SMALL)


def test_the_page_shows_what_python_answers() -> None:
    for library in ("pandas", "polars", "pyarrow"):
        pytest.importorskip(library, reason="needs pandas, polars and pyarrow (extra: frames)")
    shown = doctest.testfile(str(PAGE), module_relative=False, optionflags=doctest.ELLIPSIS)
    assert shown.attempted > 10
    assert shown.failed == 0


def test_a_frame_has_a_row_per_run_with_its_settings_and_metrics(results: Results) -> None:
    pandas = pytest.importorskip("pandas", reason="needs pandas (extra: frames)")
    frame = results.to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert len(frame) == RUNS
    row = frame[(frame.cell == "16/s") & (frame.policy == "off") & (frame.seed == 1)].iloc[0]
    assert row["workload.arrival.request_rate"] == "16/s"
    assert row["ttft_p99_ms"] == results.runs["16/s", "off", 1].metrics["ttft_p99_ms"]


@pytest.mark.parametrize(
    ("library", "method"), [("polars", "to_polars"), ("pyarrow", "arrow"), ("pandas", "to_pandas")]
)
def test_every_library_gets_the_same_columns(results: Results, library: str, method: str) -> None:
    pytest.importorskip(library, reason=f"needs {library} (extra: frames)")
    for table in (results.table(), results.steps(), results.requests("16/s", "static(k=3)", 1)):
        frame = getattr(table, method)()
        for name, values in table.columns.items():
            np.testing.assert_array_equal(frame[name].to_numpy(), values)


def test_records_that_were_not_kept_are_made_again(results: Results) -> None:
    assert results.records("4/s", "off", 0) is None
    assert len(results.requests("4/s", "off", 0)) == 60
    assert results.steps().columns["emitted"].sum() == 60 * 20


def test_a_library_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(InputError, match=r"leadline\[frames\]"):
        Table({"a": [1]}).to_polars()


def test_a_scenario_is_a_name_a_file_data_or_itself(tmp_path: Path) -> None:
    loaded = sim.api.load(SMALL)
    assert isinstance(loaded, Scenario)
    again = sim.api.load(loaded, {"workload.num_requests": 61}, seeds=1, policies=["off"])
    assert (again.workload.num_requests, again.run.seeds, again.labels) == (61, (0,), ("off",))
    assert sim.api.load("moe-depth").name == "moe-depth"
    with pytest.raises(ScenarioError, match="drafter"):
        sim.api.load({**SMALL, "drafter": "eagle33"})
    with pytest.raises(InputError, match="no scenario"):
        sim.api.load("moe-dept")


def test_check_warns_as_the_command_does() -> None:
    _, _, told = leadline("check", "bursts")
    assert told.splitlines() == [f"warning: {each}" for each in sim.api.check("bursts")]


def test_names_of_the_package_are_there_and_no_others() -> None:
    assert sim.load is sim.api.load
    with pytest.raises(AttributeError, match="nonsense"):
        sim.nonsense  # noqa: B018


def test_importing_leadline_imports_nothing_heavy() -> None:
    heavy = ("numpy", "duckdb", "pydantic", "simpy")
    code = f"import sys, sim.cli, sim.sweep; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def leadline(*arguments: object) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, [str(each) for each in arguments])
    return done.exit_code, done.stdout, done.stderr


def test_shards_on_the_command_line_then_a_run_that_compares(tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(json.dumps(SMALL))
    common = ("run", tmp_path / "small.yaml", "--out", tmp_path / "out", "--jobs", 1)
    for part in (1, 2):
        code, printed, told = leadline(*common, "--shard", f"{part}/2")
        assert (code, printed) == (0, "")
        assert f"shard {part}/2: {RUNS // 2} runs made, 0 there before" in told
    code, printed, told = leadline(*common)
    assert code == 0
    assert "is best" in printed or "no difference" in printed
    assert f"{RUNS} of {RUNS} runs were there before" in told


def test_a_report_is_written_into_the_folder(tmp_path: Path) -> None:
    for library in ("altair", "jinja2"):
        pytest.importorskip(library, reason=f"needs {library} (extra: report)")
    (tmp_path / "small.yaml").write_text(json.dumps(SMALL))
    code, _, told = leadline(
        "run", tmp_path / "small.yaml", "--out", tmp_path / "out", "--jobs", 1, "--report"
    )
    assert code == 0, told
    assert "goodput(k_max=4)" in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--shard", "1/2"), "add --out DIR"),
        (("--report",), "add --out DIR"),
        (("--shard", "3/2", "--out", "OUT"), "the first number goes from 1 to the second"),
        (("--shard", "half", "--out", "OUT"), "write I/N"),
        (("--precision", "2"), "write a percentage, for example 2%"),
        (("--precision", "0%"), "write a percentage"),
    ],
)
def test_wrong_flags_are_told(arguments: tuple[str, ...], message: str, tmp_path: Path) -> None:
    wanted = [str(tmp_path) if each == "OUT" else each for each in arguments]
    code, _, told = leadline("run", "moe-depth", "--quick", *wanted)
    assert code == 2
    assert message in told


def test_tables_say_how_many_seeds_a_cell_took() -> None:
    found = run_scenario(
        small(run__seeds=8, run__precision="90%", policies=["off", {"policy": "static", "k": 3}])
    )
    assert {len(found.seeds(cell.label)) for cell in found.cells} == {5}
    assert "paired over 5 seeds" in footnote(found.comparison)


def test_stopped_intervals_hold_the_truth_nearly_as_often_as_they_say() -> None:
    """At least nine in ten do, where the precision is a fraction of the spread between seeds."""
    seeds, holds = coverage(0.04, 0.02, trials=300)
    assert seeds > 10
    assert holds > 0.9


@pytest.mark.parametrize("wrong", [{"seeds": 0}, {"jobs": 0}, {"executor": "x"}])
def test_numbers_and_names_that_mean_nothing_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(wrong))):
        sim.api.run(SMALL, **wrong)


def test_one_policy_may_be_named_without_a_list() -> None:
    assert sim.api.load(SMALL, policies="off").labels == ("off",)


def test_a_missing_extra_is_told_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sim.report.vega.PACKAGES", ("no_such_package",))
    out = tmp_path / "out"
    result = CliRunner().invoke(app, ["run", "azure-conversation", "--out", str(out), "--report"])
    assert result.exit_code == 2
    assert "leadline[report]" in result.output
    assert not out.exists()
