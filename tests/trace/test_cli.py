"""``leadline trace`` from the command line."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from sim.errors import InputError
from sim.scenario.load import load_scenario
from sim.sweep import run_scenario, save
from sim.sweep.prepare import make_run
from sim.trace.cli import app
from sim.workload.traces import read_trace
from tests.against.writers import vllm_bench
from tests.scenario.support import VALID, read

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


def test_a_seed_that_the_folder_has_no_run_of_is_refused(small: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    save(run_scenario(load_scenario(Path(small)), out=folder), folder)
    with pytest.raises(InputError, match=r"no run of seed 7 at 2/s, seqs=32; seeds are 1$"):
        run(folder, "--seed", 7, "--out", tmp_path / "t.json")


@pytest.mark.parametrize("form", ["vllm", "aiperf", "guidellm", "mooncake", "leadline"])
def test_printed_commands_survive_any_file_name(small: str, tmp_path: Path, form: str) -> None:
    """A shell, or YAML, reads back the name that was given."""
    name = "it's a $file #1.jsonl"
    said = run("requests", small, "--format", form, "--out", tmp_path / name).splitlines()[-1]
    if form in ("mooncake", "leadline"):
        assert yaml.safe_load(said)["workload"]["arrival"]["path"] == name
    else:
        words = shlex.split(said)
        assert name in words or f"kind=mooncake,path={name},hash_id_block_size=512" in words


def test_the_requests_of_a_recorded_benchmark_become_a_trace(tmp_path: Path) -> None:
    """A result as ``vllm bench serve --save-detailed`` writes it, of a run of our own."""
    scenario = read(TEXT).cells[0].scenario
    records, _ = make_run(scenario, scenario.policies[0], 1)
    recorded = vllm_bench(records, rate=2.0, detailed=True)
    (tmp_path / "b.json").write_text(json.dumps(recorded))
    said = run("import", tmp_path / "b.json", "--out", tmp_path / "t.jsonl")
    found = read_trace(tmp_path / "t.jsonl", "leadline")
    sent = np.sort(records.requests["sent_ns"])
    assert sorted(found.prompt_tokens) == sorted(records.requests["prompt_tokens"])
    assert sorted(found.output_tokens) == sorted(records.requests["output_tokens"])
    assert np.abs(np.diff(found.arrival_ns) - np.diff(sent)).max() < 1000
    assert "30 requests at 2/s" in said


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--cell", "9/s"), "--cell: there is no '9/s'"),
        (("--policy", "statik"), "--policy: there is no 'statik'"),
        (("--from", "99999"), r"--from 99999: the run ends at \d+\.\d+ s"),
        (("--from", "5", "--to", "4"), "--to 4 does not come after --from 5"),
    ],
)
def test_wrong_options_are_named(small: str, tmp_path: Path, args: tuple[str, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        run(small, "--out", tmp_path / "t.json", *args)
    assert not (tmp_path / "t.json").exists()
