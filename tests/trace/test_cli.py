"""``leadline trace`` from the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from sim.errors import InputError
from sim.trace.cli import app
from sim.workload.traces import read_trace
from tests.scenario.support import VALID


TEXT = (
    VALID.replace("num_requests: 500", "num_requests: 30")
    .replace("[1, 2]", "[1]")
    .replace("warmup: {requests: 50}", "warmup: none")
)


@pytest.fixture
def small(tmp_path: Path) -> str:
    path = tmp_path / "small.yaml"
    path.write_text(TEXT)
    return str(path)


def run(*args: object) -> str:
    result = CliRunner().invoke(app, [str(arg) for arg in args])
    if result.exception is not None:
        raise result.exception
    return result.output


def test_a_run_is_written_for_the_viewer(small: str, tmp_path: Path) -> None:
    out = tmp_path / "t.json"
    said = run(small, "--out", out, "--cell", "4/s, seqs=32", "--policy", "static(k=3)")
    about: dict[str, Any] = json.loads(out.read_text())["otherData"]
    assert about == {"scenario": "small", "load": "4/s, seqs=32", "policy": "static(k=3)", "seed": 1}
    assert "30 requests" in said


def test_what_was_cut_is_said(small: str, tmp_path: Path) -> None:
    assert "cut at" in run("view", small, "--out", tmp_path / "t.json", "--most", 200)


def test_requests_are_written_with_the_command_that_replays_them(small: str, tmp_path: Path) -> None:
    out = tmp_path / "r.jsonl"
    said = run("requests", small, "--format", "vllm", "--out", out)
    assert "--timed-trace-sec-multiplier 0.001" in said
    assert len(read_trace(out, "mooncake")) == 30


def test_the_requests_of_a_recorded_benchmark_become_a_trace(tmp_path: Path) -> None:
    """Fields of vllm/benchmarks/serve.py: lengths and times of sending of every request."""
    recorded = {
        "backend": "vllm",
        "num_prompts": 3,
        "request_rate": 2.0,
        "burstiness": 1.0,
        "max_concurrency": None,
        "duration": 3.0,
        "completed": 3,
        "total_input_tokens": 60,
        "total_output_tokens": 9,
        "mean_tpot_ms": 10.0,
        "input_lens": [10, 20, 30],
        "output_lens": [2, 3, 4],
        "start_times": [5.0, 5.5, 6.5],
        "errors": ["", "", ""],
    }
    (tmp_path / "b.json").write_text(json.dumps(recorded))
    said = run("import", tmp_path / "b.json", "--out", tmp_path / "t.jsonl")
    found = read_trace(tmp_path / "t.jsonl", "leadline")
    assert found.prompt_tokens.tolist() == [10, 20, 30]
    assert found.output_tokens.tolist() == [2, 3, 4]
    assert (found.arrival_ns[1:] - found.arrival_ns[0]).tolist() == [500_000_000, 1_500_000_000]
    assert "3 requests at 2/s" in said


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--cell", "9/s"), "--cell: there is no '9/s'"),
        (("--policy", "statik"), "--policy: there is no 'statik'"),
        (("--from", "5", "--to", "4"), "--to 4 does not come after --from 5"),
    ],
)
def test_wrong_options_are_named(small: str, tmp_path: Path, args: tuple[str, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        run(small, "--out", tmp_path / "t.json", *args)
    assert not (tmp_path / "t.json").exists()
