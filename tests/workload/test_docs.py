"""The examples of docs/workloads.md are what the program accepts."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from sim.workload.config import WorkloadConfig
from sim.workload.grids import load_workload_file
from sim.workload.traces import read_trace
from tests.workload.support import ROOT

PAGE = (ROOT / "docs" / "workloads.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """The fenced blocks of one language."""
    return re.findall(rf"```{language}\n(.*?)```", PAGE, flags=re.DOTALL)


@pytest.mark.parametrize("text", blocks("yaml"))
def test_a_documented_workload_is_valid(text: str) -> None:
    """Each YAML example passes validation."""
    WorkloadConfig.model_validate(yaml.safe_load(text)["workload"])


def test_documented_files_can_be_read(tmp_path: Path) -> None:
    """The JSON examples are a trace and a workload file."""
    trace, workload = blocks("json")
    (tmp_path / "trace.jsonl").write_text(trace)
    (tmp_path / "workload.json").write_text(workload)
    assert read_trace(tmp_path / "trace.jsonl", "leadline").classes == ("chat", "code")
    assert load_workload_file(tmp_path / "workload.json").name == json.loads(workload)["name"]
