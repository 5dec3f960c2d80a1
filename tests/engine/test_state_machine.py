"""Any switches, any order of requests, aborts and waiting: books that agree, and laws that hold."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import simpy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sim.engine.batch import GRANTED
from sim.engine.client import Client
from sim.engine.config import EngineConfig
from sim.engine.prefill_first import PrefillFirst
from sim.engine.simulate import Setup, build_replica, collect, simulate
from sim.policies.base import Policy
from sim.policies.off import Off
from sim.policies.static import Static
from tests.engine.modelled import RecordedAcceptance, linear_profile, requests
from tests.engine.switches import behaviours

REQUESTS = 12
LIMIT = 256
MS = 1_000_000


@st.composite
def setups(draw: st.DrawFn, **fixed: Any) -> tuple[Setup, Policy]:
    """A small system with every limit tight now and then, under any switches."""
    depth = fixed.pop("depth", None)
    depth = draw(st.sampled_from([0, 1, 3])) if depth is None else depth
    kind = fixed.pop("kind", None) or draw(st.sampled_from(["draft_model", "eagle", "ngram"]))
    switches = draw(behaviours(**fixed))
    block_size = draw(st.sampled_from([4, 16]))
    unit = draw(st.sampled_from([None, 1, 3]))
    spare = draw(st.sampled_from([0, 3, 12, 1000]))
    engine = EngineConfig.model_validate(
        switches
        | {
            "max_num_seqs": draw(st.sampled_from([1, 3, 6])),
            "max_num_batched_tokens": draw(st.sampled_from([150, 256, 2048])),
            "max_model_len": LIMIT,
            "block_size": block_size,
            "kv_blocks": -(-LIMIT // block_size) + 2 + spare,
            "prefix_unit": None if unit is None else unit * block_size,
            "max_prefill_steps": draw(st.sampled_from([0, 1, 3])),
            "long_prefill_token_threshold": draw(st.sampled_from([0, 0, 30])),
            "swap_space": f"{draw(st.sampled_from([1, 40, 1000])) * block_size * 100}kB",
        }
    )
    n = REQUESTS
    prompts = draw(st.lists(st.sampled_from([1, 2, 16, 33, 70, 120]), min_size=n, max_size=n))
    outputs = draw(st.lists(st.sampled_from([1, 2, 9, 40]), min_size=n, max_size=n))
    luck = np.random.Generator(np.random.Philox(draw(st.integers(0, 1000))))
    runs = tuple(tuple(luck.integers(0, 4, size=o).tolist()) for o in outputs)
    groups = np.array(draw(st.lists(st.integers(-1, 1), min_size=n, max_size=n)))
    plain = requests(np.zeros(n), prompts, outputs)
    profile = linear_profile(5.0, 0.1, draft=(1.0, 0.02, 0.5), kind=kind)
    setup = Setup(
        requests=replace(plain, prefix_group=groups, prefix_tokens=np.full(n, 64)),
        profile=profile,
        drafter=profile.drafters["d"],
        engine=engine,
        processes=(RecordedAcceptance(runs),),
        max_depth=depth,
    )
    return setup, (Static(depth) if depth else Off())


class Serving(RuleBasedStateMachine):
    """One replica to which requests come and from which clients go away at any time."""

    @initialize(drawn=setups())
    def begin(self, drawn: tuple[Setup, Policy]) -> None:
        """A replica with some switches, idle."""
        self.setup, policy = drawn
        self.env = simpy.Environment(initial_time=0)
        self.replica = build_replica(self.env, self.setup, policy)
        self.client = Client(self.env, self.setup.requests, self.replica, LIMIT)
        self.scheduler = self.replica.scheduler
        self.sent: list[int] = []
        self.gone: list[int] = []
        self.aborted: set[int] = set()
        self.replica.done = self._done
        step = self.replica.step

        def checked(now: int) -> int:
            latency = step(now)
            self._check_step(latency)
            return latency

        self.replica.step = checked  # type: ignore[method-assign]
        self.env.process(self.replica.run())

    def _done(self, request: int) -> None:
        self.gone.append(request)

    def _check_step(self, latency: int) -> None:
        assert latency > 0
        self.scheduler.check_integrity()
        behaviour = self.setup.engine.behaviour
        if behaviour.reserved_output == 1:
            assert not self.scheduler.preempted
        if behaviour.preemption == "recompute":
            assert self.scheduler.transfer_ns == 0

    @rule()
    @precondition(lambda self: len(self.sent) < REQUESTS)
    def send(self) -> None:
        """The next request comes."""
        self.client._send(len(self.sent))
        self.sent.append(len(self.sent))

    @rule(which=st.integers(0, REQUESTS - 1))
    @precondition(lambda self: self.sent)
    def abort(self, which: int) -> None:
        """A client goes away, whether its request waits, runs or is answered."""
        request = self.sent[which % len(self.sent)]
        self.aborted.add(request)
        self.replica.abort(request)

    @rule(ms=st.sampled_from([1, 8, 50, 400]))
    def wait(self, ms: int) -> None:
        """Time passes; some steps end."""
        before = int(self.env.now)
        self.env.run(until=before + ms * MS)
        assert self.env.now == before + ms * MS

    @invariant()
    def the_books_agree(self) -> None:
        """Between any two events."""
        if hasattr(self, "scheduler"):
            self.scheduler.check_integrity()

    def teardown(self) -> None:
        """Let everybody finish: each request is answered once or let go, and all memory is free."""
        if not hasattr(self, "scheduler"):
            return
        self.env.run(until=int(self.env.now) + 600_000 * MS)
        assert sorted(self.gone) == self.sent
        pool = self.scheduler.pool
        assert (pool.free, pool.shared) == (pool.capacity, 0)
        assert self.scheduler.host is None or self.scheduler.host.free == self.scheduler.host.capacity
        run = collect(self.setup, self.replica)
        answered = run.requests["request"].tolist()
        assert len(set(answered)) == len(answered)
        assert set(self.sent) - self.aborted <= set(answered) <= set(self.sent)
        outputs = self.setup.requests.output_tokens
        assert run.requests["output_tokens"].tolist() == outputs[answered].tolist()
        emitted = int(run.steps["emitted"].sum())
        assert outputs[answered].sum() <= emitted <= outputs[: len(self.sent)].sum()
        if not self.aborted:
            assert emitted == outputs[: len(self.sent)].sum()
        assert np.all(run.steps["start_ns"][1:] >= run.steps["end_ns"][:-1])


Serving.TestCase.settings = settings(
    max_examples=25,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
TestServing = Serving.TestCase


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(setups(depth=0, kind="ngram", draft_at_depth_zero=False, draft_slots=False, lookahead=False))
def test_a_depth_of_zero_is_plain_decoding_under_any_switches(drawn: tuple[Setup, Policy]) -> None:
    """A drafter that is never asked changes no time, whatever else the engine does."""
    setup, _ = drawn
    plain, zero = simulate(setup, Off()), simulate(setup, Static(0))
    for name in ("scheduled_ns", "first_token_ns", "finish_ns", "preemptions"):
        np.testing.assert_array_equal(plain.requests[name], zero.requests[name], err_msg=name)
    np.testing.assert_array_equal(plain.steps["end_ns"], zero.steps["end_ns"])


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(setups(prefill="first"))
def test_a_prefill_step_grants_nothing_to_decodes(drawn: tuple[Setup, Policy]) -> None:
    """And a decode step nothing to prompts, under any other switches."""
    setup, policy = drawn
    env = simpy.Environment(initial_time=0)
    replica = build_replica(env, setup, policy)
    client = Client(env, setup.requests, replica, LIMIT)
    replica.done = client.done
    scheduler = replica.scheduler
    assert isinstance(scheduler, PrefillFirst)
    schedule = scheduler.schedule

    def checked(now: int) -> None:
        schedule(now)
        granted = scheduler.batch.row(GRANTED) > 0
        assert np.all(scheduler._prompts()[granted] == scheduler.prompts_alone)

    scheduler.schedule = checked  # type: ignore[method-assign]
    env.process(client.run())
    env.process(replica.run())
    env.run(until=client.finished)
