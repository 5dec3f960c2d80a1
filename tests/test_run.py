"""A scenario's results depend on the scenario and the seed alone."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from sim.results.store import read_run, summary
from sim.run import make_run, run_scenario
from sim.scenario.load import load_scenario
from sim.scenario.model import Scenario
from sim.workload.readers import READERS
from sim.workload.traces import read_trace, write_trace

SMALL = """
name: small
profile: llama-3.1-8b-h100
drafter: eagle3
acceptance: {process: latent, mean: 0.7, spread: 1.0, correlation: 0.5}
workload:
  arrival: {process: poisson, request_rate: 8/s}
  lengths: {input: 200, output: 60}
  num_requests: 80
policies: [off, {policy: static, k: 3}, {policy: goodput, k_max: 5}, {policy: oracle, k_max: 5}]
slo: {ttft: 300ms, tpot: 20ms}
sweep:
  workload.arrival.request_rate: [4/s, 16/s]
run: {seeds: 2, warmup: none}
"""


@pytest.fixture
def scenario(tmp_path: Path) -> Scenario:
    """A scenario of two loads, four policies and two seeds."""
    file = tmp_path / "small.yaml"
    file.write_text(SMALL)
    return load_scenario(file)


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*.*"))}


def test_the_number_of_workers_changes_no_byte(scenario: Scenario, tmp_path: Path) -> None:
    """One process and three give the same summary and the same record files."""
    one = run_scenario(scenario, jobs=1, out=tmp_path / "one")
    three = run_scenario(scenario, jobs=3, out=tmp_path / "three")
    assert json.dumps(summary(one.comparison)) == json.dumps(summary(three.comparison))
    assert files(tmp_path / "one") == files(tmp_path / "three")
    assert len(files(tmp_path / "one")) == 2 * 4 * 2 * 4


def test_records_on_disk_are_the_run(scenario: Scenario, tmp_path: Path) -> None:
    """What is written can be read back and is what the simulation gave."""
    run_scenario(scenario, out=tmp_path)
    folder = next(path.parent for path in sorted(tmp_path.rglob("run.json")) if "static" in str(path))
    read = read_run(folder)
    assert np.all(read.requests["finish_ns"] > read.requests["arrival_ns"])
    assert read.steps["emitted"].sum() == 80 * 60


def test_a_seed_decides_everything(scenario: Scenario) -> None:
    """Twice the same seed is the same run; another seed is another one."""
    policy = scenario.policies[1]
    first, again, other = (make_run(scenario, policy, seed)[0] for seed in (0, 0, 1))
    np.testing.assert_array_equal(first.steps["end_ns"], again.steps["end_ns"])
    assert first.steps["end_ns"][-1] != other.steps["end_ns"][-1]


def test_every_policy_meets_the_same_requests(scenario: Scenario) -> None:
    """Arrivals and lengths do not depend on the policy (common random numbers)."""
    runs = [make_run(scenario, policy, 0)[0].requests for policy in scenario.policies]
    for name in ("arrival_ns", "prompt_tokens", "output_tokens"):
        assert all(np.array_equal(runs[0][name], run[name]) for run in runs)


def test_global_random_state_is_left_alone(scenario: Scenario) -> None:
    """A run neither reads nor changes NumPy's global generator."""
    before = np.random.get_state()[1].copy()  # type: ignore[index,union-attr]
    make_run(scenario, scenario.policies[1], 0)
    np.testing.assert_array_equal(before, np.random.get_state()[1])  # type: ignore[index]


def test_an_exported_trace_replays_to_the_same_times(scenario: Scenario, tmp_path: Path) -> None:
    """Run, export the requests, replay the file: every request has the same times."""
    policy = scenario.policies[1]
    run, setup = make_run(scenario, policy, 0)
    trace = tmp_path / "requests.jsonl"
    write_trace(trace, setup.requests)
    assert "leadline" in READERS
    np.testing.assert_array_equal(read_trace(trace, "leadline").arrival_ns, setup.requests.arrival_ns)
    text = SMALL.replace(
        "{process: poisson, request_rate: 8/s}", "{process: trace, format: leadline, path: requests.jsonl}"
    )
    text = text.replace("  lengths: {input: 200, output: 60}\n  num_requests: 80\n", "").split("sweep:")[0]
    (tmp_path / "replay.yaml").write_text(text)
    replayed, _ = make_run(load_scenario(tmp_path / "replay.yaml"), policy, 0)
    for name, values in run.requests.items():
        np.testing.assert_array_equal(values, replayed.requests[name], err_msg=name)


def test_a_breakdown_adds_up_to_the_time(scenario: Scenario) -> None:
    """The parts of every run add up to the sum of its step latencies."""
    results = run_scenario(scenario)
    for policy in scenario.policies:
        cell = results.comparison.cells[0].load
        parts = results.runs[cell, policy.title, 0].breakdown_ns
        records, _ = make_run(expanded(scenario), policy, 0)
        total = (records.steps["end_ns"] - records.steps["start_ns"]).sum()
        assert sum(parts.values()) == pytest.approx(total, rel=1e-6)


def expanded(scenario: Scenario) -> Scenario:
    """The first cell of the sweep."""
    from sim.scenario.load import expand

    return expand(scenario)[0].scenario
