"""The unattended script, with a stand-in for python that writes what it was asked to do."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.calibrate.conftest import ROOT

SCRIPT = ROOT / "calibrate" / "on_gpu.sh"
PYTHON = """#!/usr/bin/env bash
echo "$*" >>"{log}"
case "$*" in
    -) cat >/dev/null; echo h200 ;;
    *calibrate.cli*) while [[ $1 != --out ]]; do shift; done; echo '{{}}' >"$2" ;;
    *pytest*) exit {tests} ;;
esac
"""


def _on_gpu(tmp_path: Path, tests: int = 0, **variables: str) -> tuple[int, list[str]]:
    """Exit code of the script and the command lines that it gave python."""
    python, log = tmp_path / "python", tmp_path / "log"
    python.write_text(PYTHON.format(log=log, tests=tests))
    python.chmod(0o755)
    environment = {**os.environ, "PYTHON": str(python), **variables}
    done = subprocess.run(
        ["bash", str(SCRIPT), str(tmp_path / "out")],
        env=environment,
        capture_output=True,
        timeout=60,
        check=False,
    )
    return done.returncode, log.read_text().splitlines()


def test_all_profiles_are_measured_resumably_then_tested_then_compared(tmp_path: Path) -> None:
    code, lines = _on_gpu(tmp_path)
    measured = [line for line in lines if "calibrate.cli" in line]
    models = [line.split("--model ")[1].split()[0] for line in measured]
    assert code == 0
    assert models == ["qwen3.5-27b", "llama-3.1-8b", "qwen3-8b", "qwen3-30b-a3b"]
    assert all("--resume" in line and "--device cuda" in line for line in measured)
    assert any("pytest -m cuda" in line for line in lines)
    assert any(
        "profile_cli" in line and "diff scenarios/profiles/qwen3.5-27b-h200.json" in line for line in lines
    )
    assert {path.name for path in (tmp_path / "out").glob("*.json")} == {
        f"{model}-h200.json" for model in models
    }


def test_the_budgets_of_all_models_and_the_tests_fit_into_25_minutes(tmp_path: Path) -> None:
    _, lines = _on_gpu(tmp_path)
    budgets = [int(line.split("--budget ")[1].split("s ")[0]) for line in lines if "--budget" in line]
    assert budgets[0] * len(budgets) <= 25 * 60 * 5 / 6
    assert min(budgets) >= 240


def test_failing_gpu_tests_fail_the_script_after_everything_was_measured(tmp_path: Path) -> None:
    code, lines = _on_gpu(tmp_path, tests=1, PROFILES="qwen3-8b")
    assert code == 1
    assert sum("calibrate.cli" in line for line in lines) == 1


@pytest.mark.parametrize("minutes", ["1"])
def test_without_time_nothing_is_started(tmp_path: Path, minutes: str) -> None:
    _, lines = _on_gpu(tmp_path, MINUTES=minutes)
    assert not [line for line in lines if "calibrate.cli" in line]
