"""What a sweep leaves does not depend on who made it, in which order, or how often it was stopped."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import sem, t

import sim.api
from sim.errors import InputError
from sim.results.store import json_text
from sim.sweep import Results, open_results, run_scenario, run_shard
from sim.sweep.stopping import MIN_SEEDS
from tests.sweep.support import RUNS, SMALL, contents, small


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results folder of the small scenario, made in one go by one process."""
    folder = tmp_path_factory.mktemp("whole")
    assert sim.api.run(SMALL, out=folder).made == RUNS
    return folder


def test_one_folder_holds_runs_summary_scenario_and_profile(whole: Path) -> None:
    assert len(list(whole.glob("runs/*/run.json"))) == RUNS
    assert {path.name for path in whole.iterdir()} == {"runs", "summary.json", "scenario.json", "profiles"}


def test_workers_change_no_byte(whole: Path, tmp_path: Path) -> None:
    sim.api.run(SMALL, out=tmp_path, jobs=2)
    assert contents(tmp_path) == contents(whole)


def test_shards_in_any_order_and_one_run_over_them_change_no_byte(whole: Path, tmp_path: Path) -> None:
    made = [run_shard(small(), part, 3, tmp_path).made for part in (3, 1, 2)]
    assert sum(made) == RUNS
    assert sim.api.run(SMALL, out=tmp_path).made == 0
    assert contents(tmp_path) == contents(whole)


def test_shards_of_a_precise_sweep_stop_where_one_process_does(tmp_path: Path) -> None:
    """Each shard takes whole cells, since every seed there depends on those before it."""
    precise = small(run__seeds=9, run__precision="10%", policies=["off", {"policy": "static", "k": 3}])
    for part in (1, 2):
        run_shard(precise, part, 2, tmp_path)
    found = run_scenario(precise, out=tmp_path)
    assert found.made == 0
    assert found.summary()["cells"][0]["seeds"] == list(run_scenario(precise).seeds("4/s"))


def test_a_folder_that_cannot_be_made_is_the_users_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        run_scenario(small(run__seeds=1), out=tmp_path / "file" / "out")


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lost=st.sets(st.integers(0, RUNS - 1)), damaged=st.sets(st.integers(0, RUNS - 1), max_size=3))
def test_whatever_is_lost_or_damaged_is_made_again(
    whole: Path, tmp_path_factory: pytest.TempPathFactory, lost: set[int], damaged: set[int]
) -> None:
    """Any set of runs is missing, half of a run lies about, a file is cut short: the end is the same."""
    folder = tmp_path_factory.mktemp("again") / "results"
    shutil.copytree(whole, folder)
    runs = sorted((folder / "runs").iterdir())
    (folder / "summary.json").unlink()
    unfinished = folder / "runs" / ".unfinished-1"
    shutil.copytree(runs[0], unfinished)
    (unfinished / "run.json").unlink()
    for number in lost:
        shutil.rmtree(runs[number])
    for number in damaged - lost:
        (runs[number] / "run.json").write_text("{")
    assert sim.api.run(SMALL, out=folder).made == len(lost | damaged)
    shutil.rmtree(unfinished)
    assert contents(folder) == contents(whole)


def test_what_died_long_ago_is_tidied_up(tmp_path: Path) -> None:
    old, fresh = tmp_path / "runs" / ".unfinished-a", tmp_path / "runs" / ".unfinished-b"
    for path in (old, fresh):
        path.mkdir(parents=True)
    os.utime(old, (0, 0))
    run_scenario(small(run__seeds=1, policies=["off"]), out=tmp_path)
    assert not old.exists()
    assert fresh.exists()


def test_an_extended_sweep_makes_only_what_is_missing(whole: Path, tmp_path: Path) -> None:
    """Another seed, another load, another policy, another label, another limit: each costs its own runs."""
    folder = tmp_path / "results"
    shutil.copytree(whole, folder)

    def made(**changes: object) -> int:
        return sim.api.run(small(**changes), out=folder).made

    assert made(run__seeds=3) == 6
    assert made(sweep={"workload.arrival.request_rate": ["4/s", "8/s", "16/s"]}) == 6
    policies = [{"policy": "static", "k": 3, "label": "three"}, "off", {"policy": "static", "k": 2}]
    assert made(policies=policies) == 4
    assert made(slo={"ttft": "1s"}, run__warmup="none", run__metric="ttft") == 0
    assert made(engine={"max_num_seqs": 8}) == RUNS
    assert made() == 0


def test_a_summary_sweep_keeps_no_records_and_gives_the_same_numbers(whole: Path, tmp_path: Path) -> None:
    """Extended by a policy it makes new runs alone, unless the common warm-up moves."""
    slim = small(run__records="summary", run__warmup="none")
    first = sim.api.run(slim, policies=["off"], out=tmp_path)
    assert first.records("4/s", "off", 0) is None
    assert not list(tmp_path.rglob("*.parquet"))
    again = sim.api.run(slim, out=tmp_path)
    assert again.made == RUNS - first.made
    assert _metrics_of(again) == _metrics_of(sim.api.run(small(run__warmup="none")))
    assert sim.api.run(small(), out=tmp_path).made == RUNS  # now with records


def _metrics_of(results: Results) -> str:
    cells = results.summary()["cells"]
    return json_text({"all": [[policy["metrics"] for policy in cell["policies"]] for cell in cells]})


def test_two_processes_on_one_folder_do_no_harm(whole: Path, tmp_path: Path) -> None:
    (tmp_path / "small.json").write_text(json.dumps(SMALL))
    code = "import sys, sim.api; sim.api.run(sys.argv[1], out=sys.argv[2])"
    command = [sys.executable, "-c", code, str(tmp_path / "small.json"), str(tmp_path / "out")]
    both = [subprocess.Popen(command) for _ in range(2)]
    assert [each.wait(timeout=60) for each in both] == [0, 0]
    assert _apart_from_place(tmp_path / "out") == _apart_from_place(whole)


def test_killed_at_once_and_run_again_changes_no_byte(whole: Path, tmp_path: Path) -> None:
    """SIGKILL after some runs: these stay, none is made twice, workers end, the result is the same."""
    (tmp_path / "small.json").write_text(json.dumps(SMALL))
    out = tmp_path / "out"
    code = "import sys, sim.api; sim.api.run(sys.argv[1], out=sys.argv[2], jobs=2)"
    command = [sys.executable, "-c", code, str(tmp_path / "small.json"), str(out)]
    process = subprocess.Popen(command, start_new_session=True)
    until = time.monotonic() + 60
    while len(list(out.glob("runs/*/run.json"))) < 2 and time.monotonic() < until:
        time.sleep(0.01)
    process.kill()
    process.wait()
    while _group_lives(process.pid) and time.monotonic() < until:
        time.sleep(0.02)
    assert not _group_lives(process.pid)
    kept = len(list(out.glob("runs/[!.]*/run.json")))
    assert sim.api.run(tmp_path / "small.json", out=out).made == RUNS - kept
    for path in out.glob("runs/.unfinished-*"):
        shutil.rmtree(path)
    assert _apart_from_place(out) == _apart_from_place(whole)


def _group_lives(group: int) -> bool:
    try:
        os.killpg(group, signal.SIG_DFL)
    except ProcessLookupError:
        return False
    return True


def _apart_from_place(folder: Path) -> dict[str, bytes]:
    """All files but the one that says where the scenario was read, and parts of files being replaced."""
    return {
        name: data
        for name, data in contents(folder).items()
        if name != "scenario.json" and not name.endswith(".tmp")
    }


def test_a_worker_that_dies_is_replaced(tmp_path: Path) -> None:
    """The policy kills its worker once; the sweep ends with the results of a policy that does not."""
    own_policy(
        tmp_path, "if not flag.exists():\n            flag.touch()\n            os.kill(os.getpid(), 9)"
    )
    found = sim.api.run(tmp_path / "own.yaml", jobs=2)
    assert (tmp_path / "flag").exists()
    assert json_text(found.summary()) == json_text(sim.api.run(tmp_path / "own.yaml").summary())


def test_a_worker_that_always_dies_is_named(tmp_path: Path) -> None:
    own_policy(tmp_path, "os.kill(os.getpid(), 9)")
    with pytest.raises(InputError, match=r"died 3 times while it made own at base, seed \d"):
        sim.api.run(tmp_path / "own.yaml", jobs=2)


def own_policy(folder: Path, when: str) -> None:
    (folder / "own.py").write_text(
        "import os, pathlib\n"
        "from sim.policies.base import PolicyDefaults\n"
        f"flag = pathlib.Path({str(folder / 'flag')!r})\n"
        "class Own(PolicyDefaults):\n"
        "    def draft_depths(self, batch):\n"
        f"        {when}\n"
        "        return 1\n"
    )
    policies = ["off", {"policy": "own:Own", "k_max": 1, "label": "own"}]
    data = {**SMALL, "sweep": {}, "policies": policies}
    (folder / "own.yaml").write_text(json.dumps(data))


def test_a_changed_file_is_another_run(tmp_path: Path) -> None:
    """The profile's and the own policy's contents decide, not their names."""
    own_policy(tmp_path, "pass")
    out = tmp_path / "out"
    assert sim.api.run(tmp_path / "own.yaml", out=out).made == 4
    (tmp_path / "own.py").write_text((tmp_path / "own.py").read_text().replace("return 1", "return 0"))
    assert sim.api.run(tmp_path / "own.yaml", out=out).made == 2


def test_results_opened_from_a_folder_are_those_that_were_returned(whole: Path, tmp_path: Path) -> None:
    """Summary, frames and records; the scenario's own folder may be gone."""
    moved = tmp_path / "moved"
    shutil.copytree(whole, moved)
    saved = json.loads((moved / "scenario.json").read_text())
    (moved / "scenario.json").write_text(json.dumps({**saved, "folder": "/nowhere"}))
    opened, fresh = open_results(moved), run_scenario(small())
    told, made = opened.summary(), fresh.summary()
    for cell in told["cells"]:
        for policy in cell["policies"]:
            assert len(policy.pop("runs")) == 2
    assert json_text(told) == json_text(made)
    records = opened.records("16/s", "static(k=3)", 1)
    assert records is not None
    again = fresh.requests("16/s", "static(k=3)", 1).columns
    assert all((records.requests[name] == again[name]).all() for name in again)
    assert opened.profile("4/s") == fresh.profile("4/s")


def test_a_folder_that_is_not_finished_or_damaged_is_said_so(whole: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds no summary\.json"):
        open_results(tmp_path)
    shutil.copytree(whole, tmp_path / "results")
    shutil.rmtree(next((tmp_path / "results" / "runs").iterdir()))
    with pytest.raises(InputError, match="missing or damaged; run the scenario again"):
        open_results(tmp_path / "results")


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_cell_stops_with_the_first_seed_that_makes_it_sure(jobs: int, tmp_path: Path) -> None:
    """The last seed is the first at which every interval among the leaders is narrow; seeds in order."""
    wanted = small(run__seeds=30, run__precision="4%", policies=["off", {"policy": "static", "k": 3}])
    found = sim.api.run(wanted, jobs=jobs, out=tmp_path)
    for label, cell in zip(("4/s", "16/s"), found.comparison.cells, strict=True):
        used = found.seeds(label)
        assert used == tuple(range(len(used)))
        off, static = (policy.values("tpot_mean_ms") for policy in cell.policies)
        narrow = [_half_width(off[:n], static[:n]) <= 0.04 for n in range(MIN_SEEDS, len(used) + 1)]
        assert len(used) < 30
        assert narrow == [False] * (len(narrow) - 1) + [True]
    assert found.made == sum(len(found.seeds(cell.label)) * 2 for cell in found.cells)


def _half_width(base: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """Half width of the 95 % interval of a ratio of means, from its residuals."""
    residuals = other - other.mean() / base.mean() * base
    return float(t.ppf(0.975, len(base) - 1) * sem(residuals) / base.mean())
