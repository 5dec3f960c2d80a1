"""``fleet:`` of a scenario: read, run, kept, warned of."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from sim.results.groups import by_group
from sim.results.metrics import measure
from sim.results.store import read_run, write_run
from sim.results.window import measured_window
from sim.scenario.lint import lint
from sim.scenario.model import Scenario
from sim.sweep.identity import settings_of
from sim.sweep.prepare import make_run
from sim.sweep.task import Task, run_task
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


# -- fleets whose replicas differ, come and go, or fail ----------------------------------------------

GROUPS = TEXT.replace(
    "fleet: {replicas: 3, router: round_robin}",
    """fleet:
  router: round_robin
  replicas:
    - {name: stable, count: 2, policy: off}
    - {name: canary, engine: {max_num_seqs: 4}}
    - {profile: llama-3.1-8b-a100, policy: {policy: static, k: 2}}
""",
)


def test_groups_run_their_own_policy_engine_and_profile(tmp_path: Path) -> None:
    """The compared policy runs on the canary alone; records say which replica is of which group."""
    mine = scenario(GROUPS)
    run, _ = make_run(mine, mine.policies[1], 0)
    assert run.fleet is not None
    assert run.fleet.names == ("stable", "canary", "both 2")
    assert run.fleet.group.tolist() == [0, 0, 1, 2]
    replica = run.requests["replica"]
    drafted = [int(run.requests["drafted"][replica == number].sum()) for number in range(4)]
    assert drafted[0] == drafted[1] == 0 < min(drafted[2:])
    assert run.steps["sequences"][run.steps["replica"] == 2].max() <= 4
    assert run.steps["depth"][run.steps["replica"] == 3].max() == 2
    off, _ = make_run(mine, mine.policies[0], 0)
    same = run.requests["replica"] == 0
    np.testing.assert_array_equal(
        run.requests["finish_ns"][same], off.requests["finish_ns"][off.requests["replica"] == 0]
    )
    write_run(tmp_path / "run", run)
    again = read_run(tmp_path / "run")
    assert_same(again, run)
    assert again.fleet is not None
    assert again.fleet.to_json() == run.fleet.to_json()
    assert measure(again).values == measure(run).values


def test_steps_are_priced_by_the_profile_that_made_them() -> None:
    """Terms of all groups add up to the time of all steps, whatever profile each group is on."""
    mine = read(GROUPS)
    made = run_task(Task(mine.cells[0], mine.scenario.policies[1], 0))
    steps = made.records.steps
    took = float((steps["end_ns"] - steps["start_ns"]).sum())
    assert sum(made.facts.breakdown_ns.values()) == pytest.approx(took, rel=1e-6)
    assert len(made.flops) == len(steps["tokens"])


def test_groups_add_up_to_the_fleet() -> None:
    mine = scenario(GROUPS)
    run, _ = make_run(mine, mine.policies[1], 0)
    window = measured_window(run, "none")
    found = by_group(run, window)
    assert [each.name for each in found] == ["stable", "canary", "both 2"]
    assert sum(each.requests for each in found) == measure(run, "none")["window_requests"] == 120
    assert found[0].acceptance_length == 1 < found[1].acceptance_length
    assert sum(each.replica_hours for each in found) == pytest.approx(measure(run)["replica_hours"])


def test_another_group_is_another_run() -> None:
    """What a group sets by itself is told from what it leaves to the scenario, even if it is the default."""
    texts = [
        GROUPS,
        GROUPS.replace("engine: {max_num_seqs: 4}", "engine: {}"),
        GROUPS.replace("engine: {max_num_seqs: 4}", "engine: {max_num_seqs: 256}"),
        GROUPS.replace("a100", "b200"),
        GROUPS.replace("k: 2}", "k: 4}"),
    ]
    assert len({json.dumps(settings_of(scenario(text)), sort_keys=True) for text in texts}) == len(texts)


@pytest.mark.parametrize(
    ("fleet", "where", "words"),
    [
        ("{replicas: [{role: prefill}]}", "fleet.replicas", "add a group with role: decode"),
        ("{replicas: [{profile: nope}]}", "fleet.replicas[0].profile", "there is no profile"),
        ("{replicas: [{drafter: x}]}", "fleet.replicas[0].drafter", "has no drafter 'x'"),
        ("{replicas: 2, events: [{at: 1s, fail: 2}]}", "fleet.events[0].fail", "from 0 to 1"),
        ("{replicas: 2, events: [{at: 1s}]}", "fleet.events[0]", "one of fail and slow"),
        ("{replicas: 2, events: [{at: 1s, fail: 0}, {at: 9s, fail: 0}]}", "fleet.events[1]", "still down"),
        ("{replicas: 2, scale: {min: 3, max: 4, target: 2}}", "fleet.scale", "2 run at the start"),
        ("{scale: {max: 4, target: 2, metric: kv}}", "fleet.scale.target", "at most 1"),
        ("{replicas: [{count: 2}], scale: {max: 4, target: 2}}", "fleet.scale", "into the group"),
        ("{replicas: 2, missing_draft_kv: lose}", "fleet.acceptance_loss", "is missing"),
        ("{replicas: [{engine: {max_model_len: 99}}]}", "engine.max_model_len", "make them one"),
        ("{replicas: 2, lockstep: true, events: [{at: 1s, fail: 0}]}", "fleet.lockstep", "fail as one"),
        ("{replicas: 2, kv_bandwidth: 5}", "fleet.kv_bandwidth", "50GB/s"),
    ],
)
def test_a_fleet_that_cannot_be_is_refused_at_its_place(fleet: str, where: str, words: str) -> None:
    found = problems(TEXT.replace("{replicas: 3, router: round_robin}", fleet))
    assert len(found) == 1
    assert where in found[0]
    assert words in found[0]


@pytest.mark.parametrize(
    ("fleet", "id_"),
    [
        ("{replicas: 2, kv_latency: 1ms}", "kv-link-unused"),
        ("{replicas: [{role: prefill}, {role: decode}]}", "kv-link-unlimited"),
        ("{replicas: 2, router: prefix_aware}", "prefix-router-without-cache"),
        ("{replicas: 2, report_period: 1s}", "router-setting-unused"),
        ("{replicas: 2, retry: none}", "retry-unused"),
        ("{replicas: [{drafter: ngram}]}", "drafter-without-acceptance"),
    ],
)
def test_a_setting_that_does_nothing_is_warned_of(fleet: str, id_: str) -> None:
    assert id_ in {each.id for each in lint(read(TEXT.replace("{replicas: 3, router: round_robin}", fleet)))}
