"""A user's scenario becomes what the reference engine serves, or is refused with every reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from calibrate.passes import build_bench
from calibrate.presets import PRESETS
from calibrate.validate import cli
from calibrate.validate.grid import Reach
from calibrate.validate.plan import FULL, QUICK, REACH, Plan, Size, built_in, capacity_per_s, write_profile
from calibrate.validate.served import check_models, loads_of, reach_of
from calibrate.validate.wiring import Models, serve
from sim.engine.simulate import simulate
from sim.errors import InputError
from sim.policies.config import Bounds
from sim.scenario.model import Scenario
from sim.sweep.prepare import prepare
from tests.calibrate.validate.test_agreement import PricedEngine, assert_alike
from tests.engine.modelled import linear_profile

MINE = """\
profile: cpu-small-88m
drafter: draft
acceptance: {process: iid, alpha: 0.6}
workload:
  arrival: {process: ARRIVAL}
  lengths: {input: 40, output: 20}
  num_requests: 300
engine: {max_num_seqs: 64, max_num_batched_tokens: 256}
policies: [off, {policy: static, k: 3}, {policy: goodput, k_max: 5}]
"""
POISSON = "poisson, request_rate: 2/s"


def file(folder: Path, arrival: str = POISSON, more: str = "", text: str = MINE) -> Path:
    path = folder / "mine.yaml"
    path.write_text(text.replace("ARRIVAL", arrival) + more)
    return path


def plan_of(folder: Path, path: Path, ms: float = 10.0) -> Plan:
    """As on a machine whose plain step takes ``ms`` at any size."""
    profile = linear_profile(ms, 0.0, draft=(0.3, 0.0, 0.2))
    profile = profile.model_copy(update={"drafters": {"draft": profile.drafters["d"]}})
    return Plan(write_profile(profile, folder, "here"), "draft", loads_of(path, QUICK, 1)[0])


def served(plan: Plan) -> dict[str, Scenario]:
    return {cell.label: cell.scenario for cell in plan.cells_here(1)}


def test_requests_acceptance_and_policies_are_the_users_and_profile_and_drafter_the_machines(
    tmp_path: Path,
) -> None:
    plan = plan_of(tmp_path, file(tmp_path))
    (scenario,) = served(plan).values()
    assert scenario.labels == ("off", "static(k=3)", "goodput(k_max=5)")
    assert scenario.profile == str(tmp_path / "here.json")
    for policy in scenario.policies:
        setup = prepare(scenario, policy, 1)
        assert len(setup.requests) == QUICK.full
        assert set(setup.requests.prompt_tokens) == {40}
        assert setup.max_depth == policy.depth


MIXED = """\
profile: cpu-small-88m
drafter: draft
acceptance: {process: iid, alpha: 0.6, confidence: {auc: 0.85}}
workload:
  arrival: {process: closed, max_concurrency: 6}
  lengths: {input: {type: uniform, min: 4, max: 40}, output: 12}
  num_requests: 10
  classes:
    - {name: chat, share: 0.5}
    - {name: code, share: 0.5, lengths: {input: 9, output: 20}, acceptance: {process: beta, mean: 0.8,
       concentration: 5, confidence: {auc: 0.9}}, slo: {tpot: 30ms}}
engine: {max_num_seqs: 4, max_num_batched_tokens: 32}
policies: [off, {policy: static, k: 3}, {policy: p_min, k_max: 4, p_min: 0.6}, {policy: adaspec, k_max: 4}]
"""


def test_engine_and_simulator_take_the_same_steps_in_a_users_scenario(tmp_path: Path) -> None:
    """Two classes with their own lengths, acceptance and limits, on priced steps."""
    plan = plan_of(tmp_path, file(tmp_path, text=MIXED))
    options = cli._options("tiny", "draft", "cpu", 0, QUICK, reach_of(plan.loads))
    bench: Any = build_bench(options.spec)
    (scenario,) = served(plan).values()
    for policy in scenario.policies:
        setup = prepare(scenario, policy, 1)
        simulated = simulate(setup, policy.build(Bounds(setup.max_depth)))
        assert_alike(simulated, serve(setup, policy, Models(bench, "draft"), PricedEngine))


def test_rates_keep_their_share_of_what_the_machine_can_take(tmp_path: Path) -> None:
    """Twice as long steps halve the capacity, and so the rate."""
    path = file(tmp_path)
    rates = []
    for ms in (10.0, 20.0):
        plan = plan_of(tmp_path, path, ms)
        (cell,) = plan.cells_here(1)
        rates.append(cell.scenario.workload.arrival.request_rate)  # type: ignore[union-attr]
        share = 2 / plan.loads[0].capacity_per_s
        assert rates[-1] / capacity_per_s(cell.scenario, 1) == pytest.approx(share)
        (tmp_path / "here.json").unlink()
        tmp_path = tmp_path / "again"
        tmp_path.mkdir()
    assert rates[0] / rates[1] == pytest.approx(2, rel=1e-3)


def test_a_closed_loop_keeps_its_concurrency(tmp_path: Path) -> None:
    path = file(tmp_path, "closed, max_concurrency: 40", "sweep: {workload.arrival.max_concurrency: [2, 40]}")
    plan = plan_of(tmp_path, path)
    for label, scenario in served(plan).items():
        requests = prepare(scenario, scenario.policies[0], 1).requests
        clients = int(label.removeprefix("c="))
        assert requests.max_concurrency == scenario.engine.max_num_seqs == clients
        assert len(requests) == max(clients, QUICK.full)


def test_of_a_long_sweep_first_middle_and_last_are_served_and_said(tmp_path: Path) -> None:
    path = file(tmp_path, more="sweep: {workload.arrival.request_rate: [1/s, 2/s, 3/s, 4/s, 5/s]}")
    loads, notes = loads_of(path, QUICK, 1)
    assert [load.label for load in loads] == ["1/s", "3/s", "5/s"]
    assert "3 of 5 cells are served: 1/s; 3/s; 5/s" in notes


def test_several_profiles_are_one_here(tmp_path: Path) -> None:
    text = MINE.replace("profile: cpu-small-88m", "profiles: {a: cpu-small-88m, b: cpu-small-88m}")
    loads, _ = loads_of(file(tmp_path, text=text), QUICK, 1)
    assert [load.label for load in loads] == ["base"]


def test_the_calibration_reaches_what_is_served(tmp_path: Path) -> None:
    closed = file(tmp_path, "closed, max_concurrency: 8")
    loads, _ = loads_of(closed, QUICK, 1)
    assert reach_of(loads) == Reach(sequences=8, depth=5, tokens=256, longest=60)
    lonely = file(tmp_path, "closed, max_concurrency: 1")
    loads, _ = loads_of(lonely, QUICK, 1)
    assert loads[0].reach == Reach(sequences=1, depth=5, tokens=40, longest=60)
    options = cli._options("tiny", "draft", "cpu", 0, QUICK, reach_of(loads))
    assert max(cell.width for cell in options.grid.cells) == 6
    assert all(cell.tokens > 0 for cell in options.grid.cells)


def test_memory_is_enough_for_every_place(tmp_path: Path) -> None:
    """Nothing is preempted: the pool holds the longest request in every place, with its drafts."""
    (load,) = loads_of(file(tmp_path), QUICK, 1)[0]
    engine, blocks_each = load.scenario.engine, -(-(60 + 5 + 5) // 16)
    assert engine.kv_blocks is not None
    assert engine.kv_blocks - 1 >= engine.max_num_seqs * blocks_each


def test_what_is_harmless_is_switched_off_and_said(tmp_path: Path) -> None:
    more = "\nslo: {ttft: 1s}\n"
    text = MINE.replace("max_num_batched_tokens: 256", "step_overhead: 3ms, sampling: T=1")
    loads, notes = loads_of(file(tmp_path, more=more, text=text), QUICK, 1)
    behaviour = loads[0].scenario.engine.behaviour
    assert (behaviour.capture_sizes, behaviour.dummy_drafts, behaviour.pad_new_decodes) == ((), False, False)
    assert loads[0].scenario.engine.step_overhead == 0
    said = "\n".join(notes)
    for name in ("capture_sizes", "dummy_drafts", "pad_new_decodes", "step_overhead", "greedily"):
        assert name in said


def test_what_cannot_be_served_is_refused_with_every_reason(tmp_path: Path) -> None:
    text = """\
profile: cpu-small-88m
drafter: draft
acceptance: {process: iid, alpha: 0.6, match: 0.9, sibling: 0.3}
workload:
  arrival: {process: closed, max_concurrency: 16}
  lengths: {input: 200, output: 100}
  num_requests: 50
engine: {max_num_seqs: 64, prefix_caching: true, kv_blocks: 30, max_model_len: 301}
policies:
  - {policy: tree, width: 2, k: 2}
  - {policy: disable_by_batch_size, k: 2, threshold: 4, acceptance_loss: 0.1}
"""
    with pytest.raises(InputError) as refused:
        loads_of(file(tmp_path, text=text), QUICK, 1)
    said = str(refused.value)
    for reason in ("match", "trees", "acceptance_loss", "prefix_caching", "kv_blocks", "max_model_len"):
        assert reason in said


def test_one_policy_is_no_comparison(tmp_path: Path) -> None:
    text = MINE.replace("[off, {policy: static, k: 3}, {policy: goodput, k_max: 5}]", "[off]")
    with pytest.raises(InputError, match="two or more"):
        loads_of(file(tmp_path, text=text), QUICK, 1)


def test_an_own_policy_is_found_from_the_scenarios_folder(tmp_path: Path) -> None:
    (tmp_path / "mine_policy.py").write_text(
        "from sim.policies.base import PolicyDefaults\n"
        "class Two(PolicyDefaults):\n"
        "    def draft_depths(self, batch):\n"
        "        return 2\n"
    )
    text = MINE.replace("{policy: static, k: 3}", '{policy: "mine_policy:Two", k_max: 2}')
    plan = plan_of(tmp_path, file(tmp_path, text=text))
    (scenario,) = served(plan).values()
    assert scenario.labels[1] == "mine_policy:Two(k_max=2)"
    assert scenario.policies[1].build(Bounds(2)).drafts


def test_models_that_the_engine_does_not_run_are_refused_together() -> None:
    hybrid, parallel = PRESETS["qwen3.5-27b"], PRESETS["qwen3-8b"].drafters["dflash"]
    with pytest.raises(InputError) as refused:
        check_models(hybrid, {**hybrid.drafters, "dflash": parallel})
    lines = str(refused.value).splitlines()[1:]
    assert [line.split(":")[0] for line in lines] == [
        "--model Qwen3.5-27B",
        "--drafter qwen3.5-0.8b",
        "--drafter dflash",
    ]


@pytest.mark.parametrize("size", [QUICK, FULL])
def test_the_built_in_loads_lie_within_their_reach(size: Size) -> None:
    for load in built_in(size):
        requests = prepare(load.scenario, load.scenario.policies[-1], 0).requests
        assert load.reach == REACH
        assert int((requests.prompt_tokens + requests.output_tokens).max()) <= REACH.longest
        assert load.scenario.engine.max_num_seqs == REACH.sequences
        assert max(policy.depth for policy in load.scenario.policies) == REACH.depth
