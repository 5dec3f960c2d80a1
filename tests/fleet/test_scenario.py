"""``fleet:`` of a scenario: read, run, kept, warned of."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from sim.results.metrics import measure
from sim.results.store import read_run, write_run
from sim.scenario.lint import lint
from sim.scenario.model import Scenario
from sim.sweep.identity import settings_of
from sim.sweep.prepare import make_run
from tests.fleet.test_fleet import assert_same
from tests.scenario.support import problems, read

TEXT = """\
profile: llama-3.1-8b-h100
drafter: eagle3
acceptance: {process: iid, alpha: 0.7}
workload:
  arrival: {process: poisson, request_rate: 40/s}
  lengths: {input: 128, output: 16}
  num_requests: 120
policies: [off, {policy: static, k: 3}, {policy: disable_by_batch_size, k: 3, threshold: 16}]
fleet: {replicas: 3, router: round_robin}
"""


def scenario(text: str = TEXT) -> Scenario:
    return read(text).scenario


def test_a_scenario_with_a_fleet_runs_on_it_and_is_read_back(tmp_path: Path) -> None:
    mine = scenario()
    run, _ = make_run(mine, mine.policies[1], 0)
    assert run.replicas == 3
    assert np.bincount(run.requests["replica"]).tolist() == [40, 40, 40]
    write_run(tmp_path / "run", run)
    again = read_run(tmp_path / "run")
    assert_same(again, run)
    assert measure(again)["busy_share"] == measure(run)["busy_share"] < 1


def test_a_fleet_of_one_is_a_scenario_without(tmp_path: Path) -> None:
    alone = scenario(TEXT.replace("fleet: {replicas: 3, router: round_robin}\n", ""))
    one = scenario(TEXT.replace("replicas: 3", "replicas: 1"))
    assert_same(make_run(alone, alone.policies[1], 0)[0], make_run(one, one.policies[1], 0)[0])


def test_another_fleet_is_another_run() -> None:
    assert settings_of(scenario()) != settings_of(scenario(TEXT.replace("3, router", "2, router")))


def test_mistakes_are_named_at_their_place() -> None:
    text = TEXT.replace("replicas: 3, router: round_robin", "replicas: 0, router: random")
    found = problems(text)
    assert any(each.startswith("9:19: fleet.replicas:") for each in found)
    assert any("fleet.router" in each and "power_of_two" in each for each in found)


def test_warnings_count_the_requests_of_one_replica() -> None:
    """Twelve clients over three replicas are four on each: a threshold at eight is never reached."""
    closed = TEXT.replace("process: poisson, request_rate: 40/s", "process: closed, max_concurrency: 12")
    closed = closed.replace("threshold: 16", "threshold: 8")
    ids = [
        {each.id for each in lint(read(closed.replace("replicas: 3", f"replicas: {count}")))}
        for count in (1, 3)
    ]
    assert "threshold-unreachable" not in ids[0]
    assert "threshold-unreachable" in ids[1]
