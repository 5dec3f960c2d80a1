"""Plans of a queue whose waits are known, and the command line."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from typer.testing import CliRunner, Result

from sim.cli import app as leadline
from sim.errors import InputError
from sim.plan.answer import Answer, Question, answer
from sim.plan.cli import app as plan_app
from sim.plan.money import Prices
from sim.plan.objective import Objective, objective
from sim.plan.plan import Plan, _mapper
from sim.plan.probe import Bench, Probe
from sim.plan.report import footnote, markdown, verdict
from sim.plan.search import highest
from sim.plan.size import Size
from sim.plan.traffic import peak_of
from sim.plan.what_if import Case, cases, chosen, notes
from sim.scenario.load import load_scenario
from tests.plan.support import SERVICE_S, bench, probe, write_queue

leadline.add_typer(plan_app, name="plan")


def plan(*args: object) -> Result:
    return CliRunner().invoke(leadline, ["plan", *map(str, args)])


def planned(
    folder: Path, *limits: str, peak: float = 50.0, requests: int = 200, seeds: int = 3, check: bool = False
) -> Answer:
    scenario = load_scenario(write_queue(folder, seeds=seeds))
    case = Case("linear.json", None, scenario, scenario.policies[0])
    asked = objective(scenario, limits, None)
    return answer(case, Question(asked, peak, "least_requests", requests, check))


def test_the_highest_rate_is_that_of_m_d_1_and_the_check_confirms_it(tmp_path: Path) -> None:
    """Mean wait S rho / (2 (1 - rho)): a mean TTFT of 2 S allows rho = 2/3.

    The plan stays below by its interval; the mean over other seeds keeps the limit there, and 1.1 times
    the rate misses it beyond the interval.
    """
    found = planned(tmp_path, f"ttft_mean={2e3 * SERVICE_S}ms", requests=800, seeds=5, check=True)
    theory = (2 / 3) / SERVICE_S
    assert 0.88 * theory <= found.rate_per_s <= 1.03 * theory
    assert found.checked is not None
    planned_rate, more = found.checked
    assert planned_rate.outcome != "misses"
    assert planned_rate.mean[0] <= 1
    assert more.outcome == "misses"
    assert more.rate_per_s == pytest.approx(1.1 * found.rate_per_s)
    assert found.size is not None
    assert (found.size.replicas, found.size.highest_per_s) == (1, found.rate_per_s)


def test_the_highest_rate_falls_when_a_limit_tightens(tmp_path: Path) -> None:
    rates = [planned(tmp_path, f"ttft_p90={limit}ms").rate_per_s for limit in (60, 25)]
    assert rates == sorted(rates, reverse=True)
    assert rates[0] > 1.2 * rates[-1] > 0


def test_without_a_tight_limit_the_stable_state_ends_the_rates(tmp_path: Path) -> None:
    """One server of 10 ms serves 100/s and no more, however long requests may wait."""
    found = planned(tmp_path, "ttft_p99=1h", requests=600)
    assert 85 < found.rate_per_s < 118
    assert found.found.fails is not None
    assert "backlog grew" in found.found.fails.reason


@pytest.mark.parametrize("router", ["round_robin", "least_requests", "power_of_two"])
def test_more_replicas_never_serve_less(tmp_path: Path, router: str) -> None:
    """Behind any router the highest rate rises with replicas; behind least requests it more than adds up."""
    trials = bench(tmp_path, "ttft_p90=30ms", requests=200, router=router)
    rates = []

    def served(replicas: int, rate: float) -> Probe:
        return trials.probe(rate, replicas, SERVICE_S)

    for replicas in (1, 3):
        found = highest(partial(served, replicas), 60, 1.5, 0.05, (1, 1e4))
        assert found.holds is not None
        rates.append(found.holds.rate_per_s)
    assert rates == sorted(rates)
    if router == "least_requests":
        assert rates[1] > 3 * rates[0]


def test_a_fleet_is_simulated_whole_so_pooling_counts(tmp_path: Path) -> None:
    """Three replicas serve a little more than three times what one does: division would say four."""
    one = planned(tmp_path, "ttft_p90=30ms").rate_per_s
    found = planned(tmp_path, "ttft_p90=30ms", peak=3.05 * one)
    assert found.size is not None
    assert found.size.replicas <= 3  # ceil(3.05) is 4
    assert found.size.smaller is not None
    assert not found.size.smaller.meets


def test_trials_are_the_same_twice(tmp_path: Path) -> None:
    trials = bench(tmp_path, "ttft_p90=30ms")
    assert trials.probe(70.0, 2, SERVICE_S) == trials.probe(70.0, 2, SERVICE_S)


@pytest.mark.parametrize(("outlier", "tried"), [(1.6, 12), (9.0, 9)])
def test_a_trial_ends_early_only_where_nothing_can_save_it(
    tmp_path: Path, outlier: float, tried: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    uses = iter([0.1] * 8 + [outlier] + [0.1] * 3)
    monkeypatch.setattr(Objective, "used", lambda *args: (next(uses),))
    found = bench(tmp_path, "ttft_p90=30ms", requests=50).probe(20.0, 1, 0.0, range(12))
    assert len(found.used) == tried
    assert found.meets == (tried == 12)


def test_an_objective_out_of_reach_is_refused_with_the_part_that_binds(tmp_path: Path) -> None:
    found = planned(tmp_path, "ttft_p99=5ms", "e2el_p99=9s")
    assert found.size is None
    assert found.refusal.startswith(
        "TTFT p99 <= 5 ms is out of reach: TTFT p99 10 ms with one request at a time"
    )
    assert "prefill" in found.refusal


def test_a_request_alone_is_served_in_its_own_steps(tmp_path: Path) -> None:
    scenario = load_scenario(write_queue(tmp_path, output=5))
    alone = Bench(
        scenario, scenario.policies[0], objective(scenario, ["tpot_mean=10ms"], None), "round_robin", 100
    ).alone()
    assert alone.e2el_s == pytest.approx(5 * SERVICE_S)
    assert alone.used == pytest.approx((1.0,))


# -- words ------------------------------------------------------------------------------------------


def compared(folder: Path, rates: tuple[float, float], error: float) -> Plan:
    """Two policies of one profile at a peak of 10/s, with the rates of one replica given."""
    known = planned(folder, "ttft_p90=30ms", seeds=1)
    answers = []
    for name, rate in zip(("a|b<i>", "other"), rates, strict=True):
        case = replace(known.case, policy=known.case.policy.model_copy(update={"label": name}))
        count = -int(-10 // rate)
        fleet = Size(count, probe(10.0, 0.5, replicas=count), None, count * rate)
        found = replace(known.found, holds=probe(rate, 0.9))
        answers.append(replace(known, case=case, found=found, size=fleet, error=error))
    question = Question(objective(known.case.scenario, ["ttft_p90=30ms"], None), 10.0, "round_robin", 50)
    return Plan("q", question, Prices({}, {}, None), tuple(answers), 1)


def test_a_replica_saved_by_less_than_the_error_is_not_certain(tmp_path: Path) -> None:
    said = verdict(compared(tmp_path, (10.4, 9.8), 0.09))
    assert "needs 1 replica" in said
    assert "saves over other is not certain: the rate of one replica" in said
    assert "less than 9 %, the profile's error" in said
    assert "No difference" not in said
    assert "No difference to other: within 9 %" in verdict(compared(tmp_path, (9.9, 9.8), 0.09))
    assert "certain" not in verdict(compared(tmp_path, (20.0, 9.8), 0.09))


def test_markdown_escapes_what_it_would_read_as_its_own(tmp_path: Path) -> None:
    found = compared(tmp_path, (10.4, 9.8), 0.09)
    text = markdown(found)
    assert "a\\|b&lt;i&gt;" in text
    assert "<i>" not in text
    assert "over 1 seed (no interval" in footnote(found)


def _die(case: Case) -> Answer:
    os._exit(1)


def test_a_worker_that_dies_is_an_input_error_with_advice() -> None:
    with pytest.raises(InputError, match="fewer --jobs"), _mapper(2) as map_all:
        list(map_all(_die, cast("list[Case]", [1, 2])))


# -- the command line ------------------------------------------------------------------------------

DRAFTING = """\
profile: qwen3.5-27b-h200
drafter: mtp
acceptance: {process: iid, alpha: 0.8}
workload:
  arrival: {process: poisson, request_rate: 30/s}
  lengths: {input: 256, output: 12}
  num_requests: 1000
engine: {preset: vllm_v1, max_num_seqs: 16}
policies: [off, {policy: static, k: 2}, {policy: oracle, k_max: 2}]
slo: {ttft: 500ms, tpot: 40ms}
run: {seeds: 2}
"""


@pytest.fixture(scope="module")
def two_jobs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result, Path]:
    folder = tmp_path_factory.mktemp("plan")
    path, out = folder / "mine.yaml", folder / "plan.md"
    path.write_text(DRAFTING, encoding="utf-8")
    return path, plan(path, "--requests", 100, "--seeds", 2, "--price", 4, "--jobs", 2, "--out", out), out


def test_the_plan_says_first_what_to_take(two_jobs: tuple[Path, Result, Path]) -> None:
    _, result, out = two_jobs
    assert result.exit_code == 0, result.output
    assert result.output.startswith("For 30.0 requests/s with 95 % of requests within the SLO: ")
    assert "oracle(k_max=2) (bound)" in result.output
    assert "cost per" in result.output
    assert "kWh" not in result.output
    text = out.read_text(encoding="utf-8")
    assert text.startswith("# Capacity plan: mine\n")
    assert text.count("\n| ") == 5


def test_data_does_not_depend_on_the_number_of_workers(two_jobs: tuple[Path, Result, Path]) -> None:
    path, result, _ = two_jobs
    again = plan(path, "--requests", 100, "--seeds", 2, "--price", 4, "--jobs", 1, "--json")
    data: dict[str, Any] = json.loads(again.stdout)
    assert data["verdict"].split() == result.output.split("\n\n")[0].split()
    found = {each["policy"]: each for each in data["answers"]}
    assert found["oracle(k_max=2)"]["bound"]
    assert data["best"] in ("off", "static(k=2)")
    for each in found.values():
        tokens = each["at_peak"]["output_tokens_per_s"]
        assert tokens == pytest.approx(30 * 12, rel=0.15)
        cost = each["replicas"] * each["gpus_per_replica"] * 4 / (tokens * 3600) * 1e6
        assert each["cost_per_million_tokens"] == pytest.approx(cost)
        assert each["one_replica"]["holds"]["outcome"] == "meets"
    memory = found["static(k=2)"]["memory"]
    assert memory["with_drafter"]["requests"] < memory["without_drafter"]["requests"]
    assert found["off"]["memory"]["with_drafter"] == found["off"]["memory"]["without_drafter"]


def test_profiles_and_drafters_are_compared(two_jobs: tuple[Path, Result, Path]) -> None:
    """``off`` stands once per profile, since it uses no drafter."""
    path, _, _ = two_jobs
    profiles = ("--profile", "qwen3.5-27b-h200", "--profile", "qwen3.5-27b-b200")
    result = plan(
        path, *profiles, "--policies", "off", "--requests", 50, "--seeds", 1, "--peak", "10/s", "--json"
    )
    data = json.loads(result.stdout)
    assert [(each["profile"], each["drafter"]) for each in data["answers"]] == [
        ("qwen3.5-27b-h200", None),
        ("qwen3.5-27b-b200", None),
    ]
    assert data["best"].startswith("off on qwen3.5-27b-")


def test_what_a_scenario_sweeps_is_compared_or_noted(tmp_path: Path) -> None:
    """Profiles and drafters of a sweep are compared, rates make the peak, the rest is cut to its first."""
    path = tmp_path / "swept.yaml"
    sweep = {
        "profile": "[qwen3.5-27b-b200, qwen3.5-27b-h100]",
        "workload.arrival.request_rate": "[2/s, 9/s]",
        "acceptance": "{low: {process: iid, alpha: 0.5}, high: {process: iid, alpha: 0.9}}",
    }
    lines = "".join(f"  {key}: {values}\n" for key, values in sweep.items())
    path.write_text(f"{DRAFTING}sweep:\n{lines}", encoding="utf-8")
    loaded = chosen(path, 1, None)
    planned = cases(loaded, path, (), ())
    assert [case.profile for case in planned] == 3 * ["qwen3.5-27b-b200"] + 3 * ["qwen3.5-27b-h100"]
    assert [case.drafter for case in planned[:3]] == [None, "mtp", "mtp"]
    assert {case.scenario.acceptance for case in planned} == {loaded.cells[0].scenario.acceptance}
    assert {case.scenario.run.seeds for case in planned} == {(0,)}
    assert max(peak_of(cell.scenario) for cell in loaded.cells) == 9
    assert any("first cell is planned for: low" in note for note in notes(loaded, planned))


def test_what_is_not_used_and_few_seeds_are_noted(tmp_path: Path) -> None:
    path = write_queue(tmp_path)
    bare = chosen(path, 5, None)
    assert len(notes(bare, cases(bare, path, (), ()))) == 1
    with path.open("a", encoding="utf-8") as file:
        file.write("fleet: {replicas: 3}\n")
    loaded = chosen(path, 2, None)
    _, fleet, seeds = notes(loaded, cases(loaded, path, (), ()))
    assert "own fleet is not used" in fleet
    assert "few seeds" in seeds
    assert "one seed" in notes(chosen(path, 1, None), cases(loaded, path, (), ()))[-1]


@pytest.mark.parametrize(
    "fleet", ["replicas: [{count: 2}]", "events: [{at: 1s, fail: 0}]", "scale: {max: 3, target: 2}"]
)
def test_a_fleet_that_a_plan_cannot_find_is_refused(tmp_path: Path, fleet: str) -> None:
    path = write_queue(tmp_path)
    with path.open("a", encoding="utf-8") as file:
        file.write(f"fleet: {{{fleet}}}\n")
    loaded = chosen(path, 5, None)
    with pytest.raises(InputError, match="remove fleet from the scenario"):
        cases(loaded, path, (), ())


def test_bounds_alone_cannot_be_planned_for(two_jobs: tuple[Path, Result, Path]) -> None:
    result = plan(two_jobs[0], "--policies", "oracle(k_max=2)")
    assert result.exit_code == 2
    assert "add a policy" in result.output


def test_a_folder_that_cannot_be_written_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(**_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.TemporaryFile", refused)
    monkeypatch.setattr("sim.plan.what_if.chosen", None)  # nothing is read yet
    result = plan(write_queue(tmp_path), "--out", tmp_path / "plan.md")
    assert result.exit_code == 2
    assert "cannot be written (Permission denied)" in result.output


def test_no_policy_that_can_is_exit_code_1(tmp_path: Path) -> None:
    result = plan(write_queue(tmp_path), "--slo", "ttft_p99=1ms", "--requests", 50)
    assert result.exit_code == 1
    assert "no policy can be planned" in result.output
    assert "TTFT p99 <= 1 ms is out of reach" in result.output


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--peak", "40"), "--peak: unknown unit '' in '40'"),
        (("--peak", "0/s"), "--peak '0/s' must be above 0"),
        (("--slo", "ttft=1s"), "is no limit; write for example ttft_p99=500ms"),
        (("--goodput", "101%"), "must lie between 0 and 100%"),
        (("--router", "fastest"), "--router: none is called 'fastest'"),
        (("--price", "-1"), "write a number above 0"),
        (("--watts", "b300=700"), "no profile 'b300' is planned for; there is linear.json"),
        (("--profile", "h1000"), "there is no profile 'h1000'"),
        (("--out", "plan.pdf"), "give a name that ends in .md or .json"),
        (("--out", "nowhere/plan.md"), "there is no folder 'nowhere'"),
        (("--policies", "of"), "did you mean 'off'?"),
    ],
)
def test_what_cannot_be_planned_is_exit_code_2(tmp_path: Path, args: tuple[str, ...], message: str) -> None:
    result = plan(write_queue(tmp_path), *args)
    assert result.exit_code == 2
    assert message in result.output
