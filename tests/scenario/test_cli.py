"""The command line: messages on stderr, results on stdout, exit codes, and a quick ``--help``."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import sim.sweep.run
from sim.cli import app
from tests.scenario.support import VALID

TINY = VALID.replace("num_requests: 500", "num_requests: 60").partition("sweep:")[0]


def leadline(*args: str | int | Path) -> Result:
    """Run a command in this process."""
    return CliRunner().invoke(app, [str(arg) for arg in args])


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.yaml"
    path.write_text(TINY)
    return path


def test_help_costs_little_more_than_the_library_that_prints_it() -> None:
    """Under twice what importing Typer with its formatting takes, whatever the machine's speed."""
    commands = (["-m", "sim", "--help"], ["-c", "import typer, typer.rich_utils, importlib.metadata"])
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(3):
        for taken, command in zip(times, commands, strict=True):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([sys.executable, *command], check=True, capture_output=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            taken.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    ours, library = map(min, times)
    assert ours < 2 * library


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sim.cli, sys; print([m for m in ('numpy', 'pydantic', 'yaml', 'scipy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_check_counts_what_would_run(tiny: Path) -> None:
    done = leadline("check", tiny)
    assert done.exit_code == 0
    assert done.stdout == "small: 1 cell, 12 runs, 1 warning\n"
    assert "[few-requests]" in done.stderr


def test_strict_makes_warnings_count(tiny: Path) -> None:
    assert leadline("check", tiny, "--strict").exit_code == 1


def test_check_prints_every_problem_and_exits_with_2(tiny: Path) -> None:
    tiny.write_text(TINY.replace("0.7", "7").replace("500ms", "5"))
    done = leadline("check", tiny)
    assert done.exit_code == 2
    assert done.stdout == ""
    assert done.stderr == f"{tiny}:4:35: acceptance.alpha: is 7; it must be at most 1\n"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["check", "none.yaml"], "there is no file 'none.yaml'"),
        (["check", "own-polcy"], "did you mean 'own-policy'"),
        (
            ["run", "own-policy", "--policies", "of"],
            "--policies: no policy is called 'of'; did you mean 'off'?",
        ),
        (["run", "own-policy", "--policies", " "], "--policies: names none"),
        (["scenarios", "--copy", "own-polcy"], "did you mean 'own-policy'"),
        (["scenarios", "somewhere.yaml"], "go with --copy NAME"),
    ],
)
def test_a_mistake_is_a_message_without_a_traceback(args: list[str], message: str) -> None:
    done = leadline(*args)
    assert done.exit_code == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr + done.stdout


def test_the_schema_is_json() -> None:
    assert json.loads(leadline("schema").stdout)["$schema"].endswith("2020-12/schema")


def test_lists_name_what_there_is(tmp_path: Path) -> None:
    assert "own-policy" in leadline("scenarios").stdout
    assert [line.split()[0] for line in leadline("policies").stdout.splitlines()][:2] == ["off", "static"]
    assert (
        leadline("scenarios", "--copy", "own-policy", tmp_path).stdout
        == f"wrote {tmp_path / 'own-policy.yaml'}\n"
    )


def test_both_ways_to_ask_for_the_version_agree() -> None:
    assert leadline("version").stdout == leadline("--version").stdout == f"leadline {sim.__version__}\n"


def test_run_shows_a_table_and_writes_a_summary(tiny: Path, tmp_path: Path) -> None:
    done = leadline("run", tiny, "--policies", "off,static(k=3)", "--out", tmp_path / "out")
    assert done.exit_code == 0
    assert "static(k=3)" in done.stdout
    assert "oracle" not in done.stdout
    assert (tmp_path / "out" / "summary.json").is_file()


def test_run_prints_json_alone_when_asked(tiny: Path) -> None:
    done = leadline("run", tiny, "--json", "--seed", 7, "--seeds", 2, "--policies", "off")
    assert json.loads(done.stdout)


def test_labels_with_commas_can_be_named(tiny: Path) -> None:
    table = "disable_by_batch_size(k=5, threshold=8)"
    row = "{policy: per_batch_size, table: [[1, 8, 5], [9, 64, 2]]}"
    tiny.write_text(tiny.read_text().replace(row, "{policy: disable_by_batch_size, k: 5, threshold: 8}"))
    done = leadline("run", tiny, "--quick", "--json", "--policies", f"{table}, off")
    assert done.exit_code == 0
    assert table in done.stdout


def test_an_interrupt_exits_with_130(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sim.sweep.run, "run_scenario", interrupted)
    done = leadline("run", tiny)
    assert done.exit_code == 130
    assert "interrupted" in done.stderr
