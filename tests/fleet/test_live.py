"""Laws of a live fleet: they hold for any requests, costs, replicas, routers, roles, failures and scaling."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any, cast, get_args

import numpy as np
import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.engine.batch import Sequence
from sim.engine.config import EngineConfig
from sim.engine.simulate import Setup, build_replica, simulate
from sim.fleet.config import AnyRouter, Retry, RouterName
from sim.fleet.node import Node
from sim.policies.base import Policy
from sim.policies.off import Off
from sim.policies.static import Static
from sim.results.fleet_record import State
from sim.results.run_records import RunRecords
from tests.engine.modelled import linear_profile, requests
from tests.engine.test_laws import POLICIES, iid
from tests.engine.test_second_implementation import System, setup_of, systems
from tests.fleet.live import grouped, live
from tests.fleet.test_fleet import assert_same, fleet

ANY = st.sampled_from(get_args(AnyRouter))
RETRIES = st.sampled_from(get_args(Retry))


def small(system: System) -> Setup:
    """A random system with room for the depths of ``POLICIES``."""
    return replace(setup_of(system), max_depth=3)


def plainly(run: RunRecords) -> RunRecords:
    """A live run of one replica as the plain engine writes it."""
    tables = [{k: v for k, v in t.items() if k != "replica"} for t in (run.requests, run.steps)]
    return replace(run, requests=tables[0], steps=tables[1])


def ms(time: int) -> str:
    return f"{time}ms"


@st.composite
def misfortunes(draw: st.DrawFn, replicas: int) -> list[dict[str, Any]]:
    """Failures and slow times, some without end."""
    found = []
    for _ in range(draw(st.integers(0, 5))):
        what = draw(st.sampled_from(["fail", "fail", "slow"]))
        event: dict[str, Any] = {
            "at": ms(draw(st.integers(0, 3000))),
            what: draw(st.integers(0, replicas - 1)),
        }
        if draw(st.booleans()):
            event["for"] = ms(draw(st.integers(1, 1500)))
        found.append(event)
    return found


# -- with nothing about, it is the fleet of before ------------------------------------------------


@settings(max_examples=10, deadline=None)
@given(systems(), POLICIES, st.sampled_from(get_args(RouterName)), st.integers(2, 4))
def test_a_live_fleet_without_misfortune_is_the_plain_fleet(
    system: System, policy: Any, router: RouterName, replicas: int
) -> None:
    """Another front and another process, and not a byte of the records differs."""
    assert_same(
        live(small(system), policy, replicas, router=router), fleet(small(system), policy, replicas, router)
    )


@settings(max_examples=10, deadline=None)
@given(systems(), POLICIES, ANY)
def test_one_live_replica_behind_any_router_is_the_plain_engine(
    system: System, policy: Any, router: str
) -> None:
    assert_same(plainly(live(small(system), policy, 1, router=router)), simulate(small(system), policy()))


@settings(max_examples=20, deadline=None)
@given(systems(), POLICIES, ANY, st.integers(1, 3))
def test_events_that_change_nothing_change_nothing(
    system: System, policy: Any, router: str, replicas: int
) -> None:
    """A replica that slows down by a factor of 1, a failure after the end, a rule that never moves."""
    events = [
        {"at": "5ms", "slow": 0, "factor": 1.0, "for": "100ms"},
        {"at": "100h", "fail": 0, "for": "1s"},
    ]
    scale = {"min": replicas, "max": replicas, "target": 1.0, "period": "10ms"}
    before = live(small(system), policy, replicas, router=router)
    after = live(small(system), policy, replicas, router=router, events=events, scale=scale)
    assert_same(before, after)


# -- requests are conserved, whatever happens -----------------------------------------------------


def assert_accounted(run: RunRecords, system: System) -> None:
    """Every request ended once: answered with all its tokens, or failed; both tables agree."""
    assert run.fleet is not None
    sent = len(system.prompts)
    finished, failed = run.requests["request"].tolist(), run.fleet.failed_requests.tolist()
    assert sorted([*finished, *failed]) == list(range(sent))
    assert run.unfinished == len(failed) == run.failed
    assert run.requests["output_tokens"].tolist() == [system.outputs[i] for i in finished]
    r = run.requests
    assert np.all(r["arrival_ns"] <= r["scheduled_ns"])
    assert np.all(r["scheduled_ns"] < r["first_token_ns"])
    assert np.all(r["first_token_ns"] <= r["finish_ns"])
    for number in range(run.replicas):
        mine = run.steps["replica"] == number
        assert np.all(run.steps["start_ns"][mine][1:] >= run.steps["end_ns"][mine][:-1])
    assert run.steps["emitted"].sum() >= r["output_tokens"].sum()
    if not run.fleet.retried and not failed:
        assert run.steps["emitted"].sum() == r["output_tokens"].sum()
        gaps, counts, _ = run.chunk_gaps
        assert (gaps * counts).sum() == (r["finish_ns"] - r["first_token_ns"]).sum()


@settings(max_examples=20, deadline=None)
@given(systems(), POLICIES, ANY, RETRIES, st.data())
def test_every_request_ends_once_whatever_fails(
    system: System, policy: Any, router: str, retry: str, data: st.DataObject
) -> None:
    """Finished or failed, never both nor neither; the same again gives the same bytes."""
    replicas = data.draw(st.integers(1, 4))
    events = data.draw(misfortunes(replicas))
    rules = {"router": router, "retry": retry, "events": events, "report_period": "50ms"}
    run = live(small(system), policy, replicas, **rules)
    assert_accounted(run, system)
    assert_same(run, live(small(system), policy, replicas, **rules))
    forever = {e["fail"] for e in events if "fail" in e and "for" not in e}
    if retry in ("restart", "resume") and len(forever) < replicas:
        assert run.failed == 0


@settings(max_examples=20, deadline=None)
@given(systems(), ANY, RETRIES, st.data())
def test_every_request_ends_once_between_prefill_and_decode(
    system: System, router: str, retry: str, data: st.DataObject
) -> None:
    """As above, with KV on its way when replicas fail; prompts are computed at the prefill side."""
    counts = [data.draw(st.integers(1, 2)) for _ in range(3)]
    events = data.draw(misfortunes(sum(counts)))
    setup = small(system)
    roles = ["prefill", "decode", data.draw(st.sampled_from(["decode", "both", "prefill"]))]
    groups = [{"count": n, "role": role} for n, role in zip(counts, roles, strict=True)]
    builds: list[Callable[[], Policy]] = [Off, lambda: Static(2), Off]
    run = grouped(
        [setup] * 3,
        builds,
        groups,
        router=router,
        retry=retry,
        events=events,
        kv_bandwidth="10MB/s",
        kv_latency="3ms",
        missing_draft_kv=data.draw(st.sampled_from(["rebuild", "lose"])),
        acceptance_loss=0.5,
    )
    assert_accounted(run, system)


@settings(max_examples=20, deadline=None)
@given(systems(), POLICIES, ANY, st.sampled_from(["in_flight", "waiting", "busy", "kv"]), st.data())
def test_every_request_ends_once_while_the_fleet_scales(
    system: System, policy: Any, router: str, metric: str, data: st.DataObject
) -> None:
    """The number of replicas stays within its limits, and one that does not take requests gets none."""
    least, start, most = sorted(data.draw(st.lists(st.integers(1, 5), min_size=3, max_size=3)))
    scale = {
        "min": least,
        "max": most,
        "metric": metric,
        "target": data.draw(st.sampled_from([0.2, 1.0, 3.0])),
        "period": "60ms",
        "startup": data.draw(st.sampled_from(["0ms", "100ms"])),
        "cooldown": data.draw(st.sampled_from(["0ms", "500ms"])),
    }
    run = live(small(system), policy, start, router=router, scale=scale)
    assert_accounted(run, system)
    assert run.failed == 0
    assert run.fleet is not None
    _, open_ = run.fleet.counts()
    assert open_.max() <= most
    assert run.fleet.replica_hours <= most * run.fleet.end_ns / 3.6e12 * (1 + 1e-9)
    assert open_.min() >= min(least, start)
    sent, on = run.requests["sent_ns"], run.requests["replica"]
    for number in range(run.replicas):
        took = [sent[(on == number) & within] for within in _not_open(run, number, sent)]
        assert not sum(map(len, took))  # draining, starting or off: nothing new


def _not_open(run: RunRecords, replica: int, times: Any) -> list[Any]:
    """Which of the times lie in each stretch in which a replica takes no requests."""
    marks = [*states(run, replica), (int(times.max(initial=0)) + 1, State.OFF)]
    return [
        (times >= start) & (times < end)
        for (start, state), (end, _) in pairwise(marks)
        if state != State.OPEN
    ]


# -- failures -------------------------------------------------------------------------------------


def states(run: RunRecords, replica: int) -> list[tuple[int, State]]:
    """What one replica did, and from when on."""
    assert run.fleet is not None
    columns = [run.fleet.changes[name].tolist() for name in ("time_ns", "replica", "state")]
    return [(time, State(state)) for time, number, state in zip(*columns, strict=True) if number == replica]


@settings(max_examples=10, deadline=None)
@given(systems(), POLICIES, ANY)
def test_a_failed_replica_runs_no_step_until_it_is_back(system: System, policy: Any, router: str) -> None:
    """The step that ran is its last."""
    events = [{"at": "30ms", "fail": 0, "for": "400ms"}]
    run = live(small(system), policy, 2, router=router, events=events)
    starts = run.steps["start_ns"][run.steps["replica"] == 0]
    assert not np.any((starts >= 30e6) & (starts < 430e6))


@settings(max_examples=15, deadline=None)
@given(systems(), POLICIES, st.integers(1, 6))
def test_a_replica_that_fails_holds_no_kv_and_forgets_none_of_its_requests(
    system: System, policy: Any, steps: int
) -> None:
    """Running and waiting requests come back once each; all blocks are free, and no prefix is cached."""
    setup, env = small(system), simpy.Environment()
    node = cast(Node, build_replica(env, setup, policy(), Node))
    node.settle(0, "both", State.OPEN)
    r, sent = setup.requests, len(setup.requests)
    for i in range(sent):
        group, shared = r.prefix_of(i)
        prompt, output = int(r.prompt_tokens[i]), int(r.output_tokens[i])
        node.submit(Sequence(i, 0, prompt, output, 0, 0, group, shared))
    answered: list[int] = []
    for now in range(steps):
        if not node.rests():
            node.step(now)
            answered += node.finished
    lost = [each.request for each in node.evict()]
    assert sorted([*answered, *lost]) == list(range(sent))
    node.scheduler.check_integrity()
    assert node.scheduler.pool.free == node.scheduler.pool.capacity
    assert node.rests()
    assert node.scheduler.cache is None or not node.scheduler.cache.keys


def test_a_replica_may_fail_before_it_ever_ran() -> None:
    """At time 0 no process has begun; what comes meanwhile goes elsewhere, or waits."""
    engine = EngineConfig(preset="ideal", kv_blocks=10_000)
    profile = linear_profile(10.0, 0.0, draft=None)
    setup = Setup(requests([0.0, 0.0], 4, [3, 3]), profile, None, engine, (iid(0.0),), 0)
    events = [{"at": "0ms", "fail": 0, "for": "50ms"}, {"at": "0ms", "fail": 1, "for": "70ms"}]
    run = live(setup, Off, 2, router="round_robin", events=events)
    assert run.requests["scheduled_ns"].tolist() == [50_000_000, 50_000_000]
    assert [time for time, state in states(run, 0) if state == State.OPEN] == [0, 50_000_000]


@pytest.mark.parametrize("retry", ["restart", "resume"])
def test_tokens_that_a_client_has_are_not_streamed_twice(retry: str) -> None:
    """Chunks of a retried request add up to its time from first token to last, as those of any other."""
    profile = linear_profile(10.0, 0.0, draft=None)
    engine = EngineConfig(preset="ideal", kv_blocks=10_000)
    setup = Setup(requests([0.0, 0.001], 4, [50, 60]), profile, None, engine, (iid(0.0),), 0)
    events = [{"at": "205ms", "fail": 0}]
    run = live(setup, Off, 2, router="round_robin", retry=retry, events=events)
    assert run.requests["replica"].tolist() == [1, 1]
    gaps, counts, _ = run.chunk_gaps
    lasted = run.requests["finish_ns"] - run.requests["first_token_ns"]
    assert (gaps * counts).sum() == lasted.sum()
    assert counts.sum() == 49 + 59
    assert run.requests["first_token_ns"][0] == 10_000_000  # what it saw before the failure counts
    again = 50 if retry == "restart" else 0
    assert run.steps["emitted"].sum() == 50 + 60 + (21 if again else 0)
