"""One replica of the serving engine: the step, and the SimPy process that repeats it.

A step is schedule -> verify -> accept -> commit -> choose next depths -> draft -> trim -> retire
-> observe, in vLLM's order: drafts made at the end of one step are verified in the next. Between
two outside events nothing else can change a replica, so a step is computed whole and then waited
for; what it emitted counts at its end.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import NamedTuple

import numpy as np
import simpy

from sim.cost.graphs import EAGER, MIXED
from sim.cost.step_cost import StepCost
from sim.engine.batch import (
    ACCEPTED,
    COMPUTED,
    DRAFT,
    DRAFTED,
    END,
    GRANTED,
    PADS,
    POINTER,
    REQUEST,
    ROUNDS,
    TOKENS,
    Int64,
    Sequence,
)
from sim.engine.config import EngineConfig
from sim.engine.drafting import Drafted, Drafting
from sim.engine.holes import Holes
from sim.engine.host import Host
from sim.engine.journal import Journal
from sim.engine.plan import Plan, decode_plan, mixed_plan, reads_within
from sim.engine.scheduler import Scheduler
from sim.errors import SimulationError
from sim.policies.base import Outcome, Policy
from sim.results.records import WINDOW_COLUMNS


class Computed(NamedTuple):
    """One step between its passes and its end: times of the target's parts, and what was accepted."""

    plan: Plan
    launch: tuple[int, int]
    target_ns: tuple[int, int, int]
    draft: Drafted
    accepted: Int64
    emitted: Int64
    requests: Int64
    survivors: Int64 | None

    @property
    def took_ns(self) -> int:
        """Latency of the step by itself."""
        return sum(self.target_ns) + self.draft.ns


class Replica:
    """Scheduler, costs and policy of one engine, and its journal.

    ``done`` is called with the number of each finished request, at the end of its step. ``structured``
    says of each request class whether its answers follow a grammar.
    """

    journal_type = Journal

    def __init__(
        self,
        env: simpy.Environment,
        scheduler: Scheduler,
        cost: StepCost,
        policy: Policy,
        engine: EngineConfig,
        max_depth: int,
        keep_steps: bool = True,
        tpot_limits_ns: tuple[int, ...] = (),
        holes: Holes | None = None,
        structured: tuple[bool, ...] = (),
    ) -> None:
        behaviour = engine.behaviour
        self.env, self.scheduler, self.batch = env, scheduler, scheduler.batch
        self.cost, self.policy, self.overhead_ns = cost, policy, engine.step_overhead
        self.drafting = Drafting(
            scheduler, cost, policy, behaviour, max_depth, tpot_limits_ns, engine.drafter_max_model_len
        )
        self.host = Host(engine, self.batch, policy.drafts, structured)
        self.pad_queries, self.pad_depths = behaviour.pad_queries, behaviour.pad_depths
        self.holes = holes
        self.seen_whole = not (self.pad_depths or cost.window_tokens or cost.draft_window)
        """Whether drafts are what was proposed, and KV is read whole."""
        self._idle_share, self._idle_turn = engine.idle_rank_share, 0.0
        more = (*(WINDOW_COLUMNS if cost.window_tokens else ()), *self.host.more)
        self.journal = self.journal_type(scheduler, keep_steps, more, engine.stream_interval)
        self.done: Callable[[int], None] = lambda request: None
        self.finished: list[int] = []
        self._leaving: list[int] = []
        self._wake: simpy.Event | None = None

    # -- the outside -------------------------------------------------------------------------

    def submit(self, sequence: Sequence) -> None:
        """Queue one request; an idle replica starts at once."""
        self.scheduler.waiting.append(sequence)
        if self._wake is not None and not self._wake.triggered:
            self._wake.succeed()

    def abort(self, request: int) -> None:
        """Drop one request at the end of the step that runs, unless it is answered by then."""
        self._leaving.append(request)

    def run(self) -> Generator[simpy.Event, None, None]:
        """The SimPy process: one timeout per step, asleep while there is nothing to do."""
        while True:
            if not self.batch.n and not self.scheduler.waiting:
                self._rest()
                self._wake = self.env.event()
                yield self._wake
                self._wake = None
            yield self.env.timeout(self.step(int(self.env.now)))
            for request in self.finished:
                self.done(request)
            if self._leaving:
                self._let_go()

    def _rest(self) -> None:
        """Nothing is left to do: nothing runs ahead, and no decision is under way."""
        self.host.rest()
        if self.drafting.late is not None:
            self.drafting.late.forget()

    def _let_go(self) -> None:
        """Drop the requests whose clients went away; those not here are answered, or not yet sent."""
        for request in self._leaving:
            if self.scheduler.drop(request):
                self.done(request)
        self._leaving = []

    # -- one step ----------------------------------------------------------------------------

    def step(self, now: int) -> int:
        """Run one step that starts at ``now``; returns its latency in ns."""
        plan = self.begin(now)
        return self.end(self.compute(plan, self._launch(plan), now), now)

    def begin(self, now: int) -> Plan:
        """Schedule a step; what it has to compute."""
        self.scheduler.schedule(now)
        plan = self._plan()
        if plan.tokens == 0 and not self.scheduler.preempted:
            raise SimulationError(f"a step at {now} ns has nothing to compute")
        return plan

    def compute(self, plan: Plan, launch: tuple[int, int], now: int) -> Computed:
        """Verify, accept, commit and draft; when it ends is not said yet."""
        if not self.seen_whole:
            plan = self._seen(plan)
        target_ns = self._target_ns(plan, launch)
        accepted, emitted = self._accept(plan)
        requests = self._of(plan, REQUEST).copy() if self.policy.wants_outcomes else accepted
        overruns = self.drafting.overruns()
        survivors = self._commit(plan, accepted, emitted)
        draft = self._draft(plan, survivors, emitted, now) if not overruns else self._dummies(survivors)
        if self.host.overlap:
            target_ns = self._shown(target_ns, draft.ns)
        return Computed(plan, launch, target_ns, draft, accepted, emitted, requests, survivors)

    def end(self, step: Computed, now: int, wait_ns: int = 0) -> int:
        """Write down what a step did, ``wait_ns`` later than it was done; returns its latency in ns."""
        plan, launch, target_ns, draft, accepted, emitted, requests, survivors = step
        if wait_ns:
            target_ns = (*target_ns[:2], target_ns[2] + wait_ns)
        latency = sum(target_ns) + draft.ns
        self.journal.step(plan, accepted, emitted, now, target_ns, draft, launch, self._more(plan))
        self.journal.stamp(plan, now + latency)
        self._retire(survivors, now + latency)
        if self.holes is not None and not draft.passes:
            self.holes.punch()
        if self.policy.wants_outcomes:
            self.policy.observe(Outcome(latency, requests, plan.verified, accepted, plan.prefill_tokens))
        return latency

    def _draft(self, plan: Plan, survivors: Int64 | None, emitted: Int64, now: int) -> Drafted:
        """Choose the next depths and run the drafter for them."""
        depths = self.drafting.choose(plan, survivors, now)
        return self.drafting.draft(plan, survivors, emitted, depths)

    def _dummies(self, survivors: Int64 | None) -> Drafted:
        """Carry dummy drafts; no drafter runs."""
        self.drafting.carry_dummies(survivors)
        return Drafted(depth=self.drafting.max_depth)

    def _plan(self) -> Plan:
        """Sum up what the scheduler granted."""
        if self.scheduler.uncut and not self.scheduler.prefilling:
            return decode_plan(self.batch, self.pad_queries)
        return mixed_plan(self.batch, self.pad_queries)

    def _seen(self, plan: Plan) -> Plan:
        """The same step without the drafts that nobody proposed, and with what is read of bounded KV."""
        if self.pad_depths:
            carried = self._of(plan, DRAFT)
            proposed = np.minimum(plan.verified, carried - self._of(plan, PADS))
            verified = np.where(carried > 0, proposed, plan.verified)
            plan = plan._replace(verified=verified, pads=plan.pads + int((plan.verified - verified).sum()))
        windows = (self.cost.window_tokens, self.cost.draft_window)
        window, drafter = (reads_within(self.batch, w, self.pad_queries) if w else None for w in windows)
        return plan._replace(window=window, drafter=drafter)

    def _launch(self, plan: Plan) -> tuple[int, int]:
        """How the target pass is launched, and its padded tokens.

        Where another data-parallel rank has nothing to run, the least graph mode of all ranks, that of its
        dummy step, is everybody's (vllm/v1/worker/dp_utils.py, 0.32; vllm-ascend pull request 15347).
        """
        if self._idle_share:
            self._idle_turn += self._idle_share
            if self._idle_turn >= 1:
                self._idle_turn -= 1
                return EAGER, plan.tokens
        return self.cost.launch(plan.tokens, MIXED if self.cost.graphs.plain else plan.uniform_depth)

    def _shown(self, target_ns: tuple[int, int, int], draft_ns: int) -> tuple[int, int, int]:
        """The parts of the step with the host time that is left to see; copies of KV hide behind nothing."""
        verify, accept, host = target_ns
        copies = self.scheduler.transfer_ns
        return verify, accept, copies + self.host.shown_ns(host - copies, verify + accept + draft_ns)

    def _more(self, plan: Plan) -> tuple[int, ...]:
        """Values of the columns that only some engines and models have."""
        host = self.host.record() if self.host.more else ()
        return host if plan.window is None else (*plan.window[1:], *host)

    def _of(self, plan: Plan, row: int) -> Int64:
        """One row of the batch over the emitting sequences."""
        values = self.batch.a[row, : self.batch.n]
        return values if plan.emitters is None else values[plan.emitters]

    def _target_ns(self, plan: Plan, launch: tuple[int, int]) -> tuple[int, int, int]:
        """Verify pass, acceptance and host time of the step."""
        n, tokens, logits = plan.sequences, plan.tokens, plan.logits
        read = (plan.context, plan.query_context, plan.prefill_pairs)
        verify = self.cost.verify_ns(
            tokens, n, logits, *read, launch, None if plan.window is None else plan.window[1:]
        )
        accept = round(self.cost.accept.ns(tokens, n, logits))
        host = round(self.cost.host.ns(tokens, n, logits)) + self.overhead_ns
        host += self.scheduler.transfer_ns
        return verify, accept, host + self.host.extra_ns(plan) if self.host.more else host

    def _accept(self, plan: Plan) -> tuple[Int64, Int64]:
        """Drafts accepted and tokens emitted (trimmed at the output length) per emitter."""
        accepted = self.scheduler.arena.accepted(self._of(plan, POINTER), plan.verified)
        left = self._of(plan, END) - self._of(plan, TOKENS)
        return accepted, np.minimum(accepted + 1, left)

    def _commit(self, plan: Plan, accepted: Int64, emitted: Int64) -> Int64 | None:
        """Keep accepted tokens, drop the KV of rejected ones, count.

        Returns the columns of the emitters that are not finished; ``None`` when all columns are.
        """
        a, n = self.batch.a, self.batch.n
        if plan.emitters is None:
            a[TOKENS : POINTER + 1, :n] += emitted
            if plan.tokens > n:
                a[ROUNDS, :n] += np.minimum(plan.verified, 1)
                a[DRAFTED, :n] += plan.verified
                a[ACCEPTED, :n] += accepted
            going = a[TOKENS, :n] < a[END, :n]
            return None if np.logical_and.reduce(going) else np.flatnonzero(going)
        at = plan.emitters
        a[COMPUTED, :n] += a[GRANTED, :n]
        a[TOKENS, at] += emitted
        a[POINTER, at] += emitted
        a[COMPUTED, at] = a[TOKENS, at] - 1
        a[ROUNDS, at] += plan.verified > 0
        a[DRAFTED, at] += plan.verified
        a[ACCEPTED, at] += accepted
        going_on: Int64 = at[a[TOKENS, at] < a[END, at]]
        return going_on

    def _retire(self, survivors: Int64 | None, end: int) -> None:
        """Take finished sequences out, in order, and write down what became of them."""
        self.finished = []
        if survivors is None:
            return
        done = np.flatnonzero(self.batch.row(TOKENS) >= self.batch.row(END))
        for gone, index in enumerate(done.tolist()):
            sequence = self.scheduler.release(index - gone)
            self.finished.append(sequence.request)
            self.journal.finish(sequence, end)
