"""A scenario's results depend on the scenario and the seed alone."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from calibrate.profile import dump_profile, load_profile
from sim.errors import InputError
from sim.results.store import read_run, summary
from sim.scenario.load import load_scenario
from sim.scenario.model import Scenario
from sim.sweep import make_run, run_scenario
from sim.workload.readers import READERS
from sim.workload.traces import read_trace, write_trace

SHIPPED = Path(__file__).resolve().parents[1] / "scenarios" / "profiles"
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
    tables, metrics_and_facts = 3, 2
    assert len(files(tmp_path / "one")) == 2 * 4 * 2 * (tables + metrics_and_facts)


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


def test_a_swept_limit_judges_its_own_cell(tmp_path: Path) -> None:
    """Goodput under a limit that nothing can meet is 0; under a loose one it is not."""
    text = (
        SMALL.split("sweep:", maxsplit=1)[0]
        + "sweep: {slo.tpot: [1us, 10s]}\nrun: {seeds: 1, warmup: none}\n"
    )
    (tmp_path / "slo.yaml").write_text(text)
    tight, loose = run_scenario(load_scenario(tmp_path / "slo.yaml")).comparison.cells
    assert tight.policies[0].mean("goodput_per_s") == 0
    assert loose.policies[0].mean("goodput_per_s") > 1


OWN = """
import numpy as np
from sim.policies.base import PolicyDefaults

class Greedy(PolicyDefaults):
    def draft_depths(self, batch):
        return np.full(batch.sequences, 50)

class Negative(PolicyDefaults):
    def draft_depths(self, batch):
        return -1

class Half(PolicyDefaults):
    def draft_depths(self, batch):
        return np.full(batch.sequences, 2.5)

class Meddler(PolicyDefaults):
    def draft_depths(self, batch):
        batch.context_tokens[:] += 1
        return 1

class Broken(PolicyDefaults):
    def draft_depths(self, batch):
        raise KeyError("oops")

class Fussy(PolicyDefaults):
    def __init__(self, needed):
        pass

class Confident(PolicyDefaults):
    wants_confidence = True
    def draft_depths(self, batch):
        return 3
    def verify_depths(self, batch, depths, confidence):
        return np.cumprod(confidence[:, :3] > 0.6, axis=1).sum(axis=1)
"""


def own_policy(tmp_path: Path, name: str, acceptance: str = "{process: iid, alpha: 0.7}") -> Scenario:
    """A scenario with one own policy, found beside its file."""
    (tmp_path / "mine.py").write_text(OWN)
    text = (
        SMALL.split("policies:", maxsplit=1)[0]
        + f"policies: [off, {{policy: 'mine:{name}', k_max: 3, label: own}}]\n"
    )
    text = text.replace("{process: latent, mean: 0.7, spread: 1.0, correlation: 0.5}", acceptance)
    (tmp_path / "own.yaml").write_text(text + "run: {seeds: 2, warmup: none}\n")
    return load_scenario(tmp_path / "own.yaml")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Negative", "depth -1"),
        ("Half", "whole number"),
        ("Meddler", "read-only"),
        ("Broken", r"KeyError: 'oops' \(mine.py:"),
        ("Fussy", "cannot be made with params"),
        ("Confident", "confidence"),
    ],
)
def test_an_own_policy_that_fails_says_how(tmp_path: Path, name: str, message: str) -> None:
    """No traceback, no endless run, no changed simulation: the policy's name and what it did."""
    with pytest.raises(InputError, match=message) as caught:
        run_scenario(own_policy(tmp_path, name))
    assert "own" in str(caught.value) or "mine" in str(caught.value)


def test_an_own_policy_is_cut_to_the_depth_it_declared(tmp_path: Path) -> None:
    """Asking for 50 drafts with k_max 3 verifies three."""
    scenario = own_policy(tmp_path, "Greedy")
    run, _ = make_run(scenario, scenario.policies[1], 0)
    assert run.steps["depth"].max() == 3


def test_an_own_policy_that_reads_claims_runs_in_workers(tmp_path: Path) -> None:
    """One process and two give the same comparison."""
    acceptance = "{process: iid, alpha: 0.7, confidence: {auc: 0.9}}"
    scenario = own_policy(tmp_path, "Confident", acceptance)
    one, two = (summary(run_scenario(scenario, jobs=jobs).comparison) for jobs in (1, 2))
    assert json.dumps(one) == json.dumps(two)


def test_labels_that_differ_in_odd_characters_keep_their_own_folders(tmp_path: Path) -> None:
    """Records of ``a/b`` and ``a:b`` do not overwrite each other."""
    text = SMALL.split("policies:", maxsplit=1)[0]
    labels = "[{policy: static, k: 1, label: 'a/b'}, {policy: static, k: 2, label: 'a:b'}]"
    (tmp_path / "odd.yaml").write_text(text + f"policies: {labels}\nrun: {{seeds: 1, warmup: none}}\n")
    run_scenario(load_scenario(tmp_path / "odd.yaml"), out=tmp_path / "out")
    assert len(list((tmp_path / "out").rglob("run.json"))) == 2


def test_no_policy_learns_when_an_answer_will_end(tmp_path: Path) -> None:
    """What remains is counted to the context limit, except for a clairvoyant policy."""
    (tmp_path / "spy.py").write_text(
        "from sim.policies.base import PolicyDefaults\n"
        "class Spy(PolicyDefaults):\n"
        "    def draft_depths(self, batch):\n"
        "        assert set((batch.remaining_tokens + batch.context_tokens).tolist()) <= {131072}\n"
        "        return 1\n"
    )
    text = SMALL.split("policies:", maxsplit=1)[0]
    text += "policies: [{policy: 'spy:Spy', k_max: 1}]\nrun: {seeds: 1, warmup: none}\n"
    (tmp_path / "spy.yaml").write_text(text)
    scenario = load_scenario(tmp_path / "spy.yaml")
    assert scenario.engine.max_model_len == 131072
    make_run(scenario, scenario.policies[0], 0)


def test_another_way_of_sampling_is_warned_of(tmp_path: Path) -> None:
    """The shipped profiles are greedy: a scenario at T=1 says so."""
    for sampling, warned in (("greedy", False), ("T=1", True)):
        text = SMALL.split("sweep:", maxsplit=1)[0] + f"engine: {{sampling: {sampling}}}\nrun: {{seeds: 1}}\n"
        (tmp_path / "s.yaml").write_text(text)
        results = run_scenario(load_scenario(tmp_path / "s.yaml"))
        assert any("sampling" in warning for warning in results.warnings) is warned


def test_a_profile_that_was_refused_is_warned_of(tmp_path: Path) -> None:
    """What its calibration found wrong with it stands beside the results."""
    profile = load_profile(SHIPPED / "llama-3.1-8b-h100.json").model_copy(update={"refused": ("it drifted",)})
    (tmp_path / "bad.json").write_text(dump_profile(profile))
    text = SMALL.split("sweep:", maxsplit=1)[0].replace("llama-3.1-8b-h100", "bad.json") + "run: {seeds: 1}\n"
    (tmp_path / "bad.yaml").write_text(text)
    assert any(
        "it drifted" in warning for warning in run_scenario(load_scenario(tmp_path / "bad.yaml")).warnings
    )
