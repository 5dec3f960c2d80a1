"""What stands around the steps: a front end before the queue, and steps that are scheduled ahead."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.acceptance.base import AcceptanceProcess
from sim.cost.breakdown import breakdown_ns
from sim.engine.config import EngineConfig
from sim.engine.simulate import Setup, simulate
from sim.errors import ScenarioError
from sim.policies.base import Policy
from sim.policies.off import Off
from sim.policies.static import Static
from sim.results.run_records import RunRecords
from sim.scenario.load import load_scenario
from sim.workload.requests import Requests
from tests.engine.modelled import RecordedAcceptance, linear_profile, requests

MS = 1_000_000
FLAT = linear_profile(fixed_ms=10.0, per_token_ms=0.0, draft=(0.0, 0.0, 0.0))
"""Every step takes 10 ms, and drafting nothing."""


def run(r: Requests, policy: Policy | None = None, runs: tuple[int, ...] = (0,), **engine: Any) -> RunRecords:
    """Requests in, records out; with a policy that drafts, every round accepts what ``runs`` says."""
    chosen = policy or Off()
    luck = cast(AcceptanceProcess, RecordedAcceptance([runs * 100] * len(r)))
    setup = Setup(
        requests=r,
        profile=FLAT,
        drafter=FLAT.drafters["d"] if chosen.drafts else None,
        engine=EngineConfig(kv_blocks=4000, **engine),
        processes=(luck,),
        max_depth=3,
    )
    return simulate(setup, chosen)


def ms(records: RunRecords, name: str) -> list[float]:
    """One column of the requests in ms."""
    return (records.requests[name] / MS).tolist()  # type: ignore[no-any-return]


def same(one: RunRecords, other: RunRecords) -> bool:
    """Whether two runs left the same records."""
    tables = ((one.requests, other.requests), (one.steps, other.steps))
    return all(np.array_equal(a[name], b[name]) for a, b in tables for name in a)


# -- the front end ---------------------------------------------------------------------------------


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(0, 300), min_size=1, max_size=8), st.integers(0, 3))
def test_a_front_end_that_takes_no_time_is_none(arrivals_ms: list[int], servers: int) -> None:
    """With all times 0 the records are the same, whatever the number of servers."""
    r = requests(np.sort(arrivals_ms) / 1e3, 40, 5)
    assert same(run(r), run(r, frontend_servers=servers))


@given(st.integers(1, 50), st.integers(0, 50), st.integers(0, 20))
@settings(max_examples=20, deadline=None)
def test_an_idle_engine_answers_later_by_the_front_ends_time(front: int, per_token: int, back: int) -> None:
    """TTFT and E2EL of a lone request grow by exactly the time before the queue and on the way back."""
    r = requests([0.0], 100, 5)
    times: dict[str, Any] = {
        "frontend_time": f"{front}ms",
        "frontend_time_per_token": f"{per_token}us",
        "answer_time": f"{back}ms",
    }
    plain, late = run(r), run(r, **times)
    more = front + per_token / 10 + back
    for name in ("first_token_ns", "finish_ns"):
        assert late.requests[name][0] - plain.requests[name][0] == round(more * MS)


def test_one_front_end_process_takes_requests_one_after_the_other() -> None:
    """Three at once reach the queue 4, 8 and 12 ms later; two processes let two go on together."""
    r = requests([0.0, 0.0, 0.0], 10, 1)
    assert ms(run(r, frontend_time="40ms", frontend_servers=1), "scheduled_ns") == [40, 80, 120]
    assert ms(run(r, frontend_time="40ms", frontend_servers=2), "scheduled_ns") == [40, 40, 80]
    assert ms(run(r, frontend_time="40ms"), "scheduled_ns") == [40, 40, 40]


def test_waiting_for_one_front_end_is_that_of_m_d_1() -> None:
    """Arrivals wait as Lindley's recursion says, and load / (2 (1 - load)) of a service in the mean."""
    service_s, load, n = 0.004, 0.5, 2_000
    gaps = np.random.default_rng(7).exponential(service_s / load, n)
    r = requests(np.cumsum(gaps), 1, 1)
    found = run(r, max_num_seqs=2048, frontend_time="4ms", frontend_servers=1).requests
    arrivals = r.arrival_ns.tolist()
    free, through = 0, []
    for arrival in arrivals:
        free = max(free, arrival) + 4 * MS
        through.append(free)
    assert np.all(found["scheduled_ns"] >= through)
    assert np.all(found["scheduled_ns"] - through <= 10 * MS)
    waited_s = (np.array(through) - arrivals).mean() / 1e9 - service_s
    assert waited_s == pytest.approx(service_s * load / (2 * (1 - load)), rel=0.15)


def test_the_next_request_of_a_client_waits_for_its_answer() -> None:
    """One client, two requests of one token: the second is sent when the first one's answer is back."""
    r = requests([0.0, 0.0], 10, 1, max_concurrency=1)
    found = run(r, frontend_time="3ms", answer_time="2ms")
    assert ms(found, "sent_ns") == [0, 15]
    assert ms(found, "finish_ns") == [15, 30]


# -- scheduling ahead ------------------------------------------------------------------------------


def test_a_request_that_comes_in_a_step_is_in_the_one_after_the_next() -> None:
    """The first decodes in steps of 10 ms; the second comes at 25 ms, and starts at 40 instead of 30."""
    r = requests([0.0, 0.025], 10, 20)
    assert ms(run(r), "scheduled_ns") == [0, 30]
    assert ms(run(r, async_scheduling=True), "scheduled_ns") == [0, 40]


@pytest.mark.parametrize(("ends", "second"), [("limit", 50), ("stop", 60)])
def test_a_stop_token_costs_one_more_step(ends: str, second: float) -> None:
    """Alone, a request of five tokens ends at 50 ms; the next one, there since 45, waits for the ghost."""
    r = requests([0.0, 0.045], 10, 5)
    found = run(r, async_scheduling=True, answers_end=ends)
    assert ms(found, "finish_ns")[0] == 50
    assert ms(found, "scheduled_ns")[1] == second


@pytest.mark.parametrize(("output", "second"), [(5, 20), (6, 30)])
def test_with_drafts_an_end_is_certain_only_where_no_draft_is_needed(output: int, second: float) -> None:
    """After the prompt come rounds of four tokens: five end with one unforeseen, the sixth is certain.

    A limit is known; whether the drafts before it will be accepted is not.
    """
    r = requests([0.0, 0.001], 10, [output, 1], max_concurrency=1)
    found = run(r, Static(3), runs=(3,), async_scheduling=True, answers_end="limit")
    steps = found.steps
    ghosts = int((steps["sequences"] > 0).sum()) - int((steps["emitted"] > 0).sum())
    assert ghosts == (1 if output == 5 else 0)
    assert ms(found, "scheduled_ns")[1] == second + 10 * ghosts


def test_a_ghost_is_computed_and_emits_nothing() -> None:
    """Its tokens are in the step beside those of the others, and in no output."""
    r = requests([0.0, 0.0], 10, [3, 6])
    steps = run(r, async_scheduling=True).steps
    assert steps["tokens"].tolist() == [20, 2, 2, 2, 1, 1, 1]
    assert steps["emitted"].tolist() == [2, 2, 2, 1, 1, 1, 0]
    assert steps["drafted"].sum() == 0


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 200), st.integers(1, 90), st.integers(1, 20)), min_size=1, max_size=12),
    st.booleans(),
    st.integers(0, 3),
)
def test_scheduling_ahead_loses_nothing_and_is_never_faster(
    rows: list[tuple[int, int, int]], closed: bool, depth: int
) -> None:
    """Every request gets its tokens, KV is given back, and no run ends earlier than the same one in turn."""
    rows = sorted(rows)
    at, prompt, output = (np.array(column) for column in zip(*rows, strict=True))
    r = requests(at / 1e3, prompt, output, max_concurrency=3 if closed else None)
    policy = Static(depth) if depth else Off()
    late = run(r, policy, runs=(1, 0, 2), async_scheduling=True)
    plain = run(r, policy, runs=(1, 0, 2))
    assert late.unfinished == 0
    assert late.steps["emitted"].sum() == output.sum() == plain.steps["emitted"].sum()
    assert late.steps["kv_blocks"][-1] <= 1
    assert late.requests["finish_ns"].max() >= plain.requests["finish_ns"].max()
    assert np.all(late.requests["first_token_ns"] > late.requests["arrival_ns"])


def test_one_client_with_known_ends_sees_no_difference() -> None:
    """Alone, and with ends that are certain, steps follow each other as they would in turn."""
    r = requests([0.0] * 4, 30, 6, max_concurrency=1)
    assert same(run(r), run(r, async_scheduling=True, answers_end="limit"))


# -- wide context ----------------------------------------------------------------------------------


def test_wide_steps_pay_for_their_context_and_the_parts_add_up() -> None:
    """Prompts beside decodes, and verified drafts, cost their context again; plain decoding does not."""
    term = FLAT.target.verify[0].model_copy(update={"per_ns": {"wide_context_tokens": 1000.0}})
    profile = FLAT.model_copy(update={"target": FLAT.target.model_copy(update={"verify": (term,)})})
    r = requests([0.0, 0.035], 50, 12)
    for policy in (Off(), Static(2)):
        setup = Setup(
            requests=r,
            profile=profile,
            drafter=profile.drafters["d"] if policy.drafts else None,
            engine=EngineConfig(kv_blocks=4000),
            processes=(cast(AcceptanceProcess, RecordedAcceptance([(1,) * 12] * 2)),),
            max_depth=2,
        )
        steps = simulate(setup, policy).steps
        wide = steps["tokens"] > steps["sequences"]
        expected = 10 * MS + 1000 * np.where(wide, steps["context_tokens"], 0)
        assert np.array_equal(steps["verify_ns"], expected)
        assert wide.any()
        assert not wide.all() or policy.drafts
        parts = breakdown_ns(steps, profile, None)
        assert parts["verify.linear"] == pytest.approx(steps["verify_ns"].sum())


def test_a_front_end_before_several_replicas_is_refused(tmp_path: Path) -> None:
    """It is known of one replica alone, so that its time is never left out in silence."""
    path = tmp_path / "two.yaml"
    path.write_text(
        "profile: llama-3.1-8b-a100\n"
        "workload:\n"
        "  arrival: {process: poisson, request_rate: 4/s}\n"
        "  lengths: {input: 100, output: 20}\n"
        "  num_requests: 5\n"
        "engine: {frontend_time: 3ms}\n"
        "fleet: {replicas: 2}\n"
        "policies: [off]\n",
        encoding="utf-8",
    )
    with pytest.raises(ScenarioError, match=r"two.yaml:6:\d+: engine.frontend_time: frontend_time is known"):
        load_scenario(path)
    assert load_scenario(path, {"fleet.replicas": 1}).engine.frontend_time == 3 * MS
