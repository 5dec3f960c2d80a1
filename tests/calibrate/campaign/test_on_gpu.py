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
    *calibrate.cli*)
        while [[ $1 != --out ]]; do shift; done
        echo '{{}}' >"$2"
        echo '{{"measured": []}}' >"${{2%.json}}.cells.jsonl" ;;
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


def _models(lines: list[str]) -> list[str]:
    return [line.split("--model ")[1].split()[0] for line in lines if "calibrate.cli" in line]


def test_tests_and_a_trial_come_first_then_all_profiles_resumably_then_comparisons(tmp_path: Path) -> None:
    code, lines = _on_gpu(tmp_path)
    measured = [line for line in lines if "calibrate.cli" in line]
    trial, *models = _models(lines)
    assert code == 0
    assert "pytest -m cuda" in next(line for line in lines if "pytest" in line or "calibrate.cli" in line)
    assert trial == "tiny"
    assert models == ["qwen3.5-27b", "llama-3.1-8b", "qwen3-8b", "qwen3-30b-a3b"]
    assert all("--resume" in line and "--device cuda" in line for line in measured)
    assert any(
        "profile_cli" in line and "diff scenarios/profiles/qwen3.5-27b-h200.json" in line for line in lines
    )
    assert {path.name for path in (tmp_path / "out").glob("*.json")} == {
        f"{model}-h200.json" for model in models
    }


def test_what_is_compared_and_what_has_no_composed_profile_is_said(tmp_path: Path) -> None:
    _, lines = _on_gpu(tmp_path)
    log = (tmp_path / "out" / "log.txt").read_text()
    assert "qwen3.5-27b: compared with scenarios/profiles/qwen3.5-27b-h200.json" in log
    for model in ("llama-3.1-8b", "qwen3-8b", "qwen3-30b-a3b"):
        assert f"{model}: no composed profile for h200" in log
    assert sum("profile_cli" in line for line in lines) == 1


def test_the_budgets_of_all_models_and_the_tests_fit_into_25_minutes(tmp_path: Path) -> None:
    _, lines = _on_gpu(tmp_path)
    budgets = [int(line.split("--budget ")[1].split("s ")[0]) for line in lines if "--budget" in line]
    trial, *budgets = budgets
    assert budgets[0] * len(budgets) <= 25 * 60 - 60
    assert min(budgets) >= 240
    assert trial == 40


def test_failing_gpu_tests_fail_the_script_after_everything_was_measured(tmp_path: Path) -> None:
    code, lines = _on_gpu(tmp_path, tests=1, PROFILES="qwen3-8b")
    assert code == 1
    assert _models(lines) == ["tiny", "qwen3-8b"]


@pytest.mark.parametrize("minutes", ["1"])
def test_without_time_only_the_trial_is_started(tmp_path: Path, minutes: str) -> None:
    _, lines = _on_gpu(tmp_path, MINUTES=minutes)
    assert _models(lines) == ["tiny"]
