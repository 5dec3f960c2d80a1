"""One replica of the serving engine: the step, and the SimPy process that repeats it.

A step is schedule -> verify -> accept -> commit -> choose next depths -> draft -> trim -> retire
-> observe, in vLLM's order: drafts made at the end of one step are verified in the next. Between
two outside events nothing else can change a replica, so a step is computed whole and then waited
for; what it emitted counts at its end.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
import simpy

from sim.cost.step_cost import StepCost
from sim.engine.batch import (
    ACCEPTED,
    COMPUTED,
    DRAFT,
    DRAFTED,
    END,
    FRESH,
    GRANTED,
    KNOWN,
    LAST_EMIT,
    POINTER,
    REQUEST,
    ROUNDS,
    TOKENS,
    Int64,
    Sequence,
)
from sim.engine.config import Behaviour
from sim.engine.scheduler import Scheduler
from sim.policies.base import Batch, Depths, Outcome, Policy
from sim.results.records import REQUEST_COLUMNS, STEP_COLUMNS, Table

NOTHING: Final = np.zeros(0, dtype=np.int64)
Step = Generator[simpy.Event, None, None]


@dataclass
class Records:
    """What a replica writes down: requests, steps, and pooled gaps between streamed chunks."""

    requests: Table = field(default_factory=lambda: Table(REQUEST_COLUMNS))
    steps: Table = field(default_factory=lambda: Table(STEP_COLUMNS))
    gaps: array[int] = field(default_factory=lambda: array("q"))


class Plan(NamedTuple):
    """What one step computes, after scheduling: sums, and arrays over the emitting sequences.

    ``emitters`` are their columns in the batch, ``None`` when every running sequence emits;
    ``verified`` the drafts verified for each. ``kv_tokens`` is the KV read by all sequences,
    ``context`` that of decoding ones.
    """

    sequences: int
    decodes: int
    tokens: int
    logits: int
    kv_tokens: int
    context: int
    query_context: int
    prefill_tokens: int
    prefill_pairs: int
    verified: Int64
    emitters: Int64 | None


class Drafted(NamedTuple):
    """What the drafter did in one step (all zero when it did not run)."""

    ns: int = 0
    depth: int = 0
    passes: int = 0
    first_tokens: int = 0
    next_tokens: int = 0
    context: int = 0


class Replica:
    """Scheduler, costs and policy of one engine, and its records.

    ``done`` is called with the number of each finished request, at the end of its step.
    """

    def __init__(
        self,
        env: simpy.Environment,
        scheduler: Scheduler,
        cost: StepCost,
        policy: Policy,
        behaviour: Behaviour,
        max_depth: int,
        overhead_ns: int = 0,
        keep_steps: bool = True,
    ) -> None:
        self.env, self.scheduler, self.batch = env, scheduler, scheduler.batch
        self.cost, self.policy, self.behaviour, self.max_depth = cost, policy, behaviour, max_depth
        self.overhead_ns, self.keep_steps = overhead_ns, keep_steps
        self.records = Records()
        self.done: Callable[[int], None] = lambda request: None
        self.finished: list[int] = []
        self.steps = 0
        self._wake: simpy.Event | None = None
        self._aligned = True

    # -- the outside -------------------------------------------------------------------------

    def submit(self, sequence: Sequence) -> None:
        """Queue one request; an idle replica starts at once."""
        self.scheduler.waiting.append(sequence)
        if self._wake is not None and not self._wake.triggered:
            self._wake.succeed()

    def run(self) -> Generator[simpy.Event, None, None]:
        """The SimPy process: one timeout per step, asleep while there is nothing to do."""
        while True:
            if not self.batch.n and not self.scheduler.waiting:
                self._wake = self.env.event()
                yield self._wake
                self._wake = None
            yield self.env.timeout(self.step(int(self.env.now)))
            for request in self.finished:
                self.done(request)

    # -- one step ----------------------------------------------------------------------------

    def step(self, now: int) -> int:
        """Run one step that starts at ``now``; returns its latency in ns."""
        self.scheduler.schedule(now)
        plan = self._plan()
        verify_ns, accept_ns, host_ns = self._target_ns(plan)
        accepted, emitted = self._accept(plan)
        outcome = (self._of(plan, REQUEST).copy(), plan.verified, accepted)
        survivors = self._commit(plan, accepted, emitted)
        depths = self._choose_depths(plan, survivors, now)
        draft = self._draft(plan, survivors, emitted, depths)
        latency = verify_ns + accept_ns + host_ns + draft.ns
        if self.keep_steps:
            self._record(plan, accepted, emitted, now, (verify_ns, accept_ns, host_ns), draft)
        self._stamp(plan, now + latency)
        self._retire(survivors, now + latency)
        if self.policy.wants_outcomes:
            self.policy.observe(Outcome(latency, *outcome))
        self.steps += 1
        return latency

    def _of(self, plan: Plan, row: int) -> Int64:
        """One row of the batch over the emitting sequences."""
        values = self.batch.row(row)
        return values if plan.emitters is None else values[plan.emitters]

    def _plan(self) -> Plan:
        """Sum up what the scheduler granted."""
        if self.scheduler.uncut and not self.scheduler.prefilling:
            return self._decode_plan()
        return self._mixed_plan()

    def _decode_plan(self) -> Plan:
        """Every sequence decodes and emits: one known token and its drafts each."""
        n, granted = self.batch.n, self.batch.row(GRANTED)
        tokens = int(np.add.reduce(granted))
        ends = self.batch.row(COMPUTED) + granted
        context = int(np.add.reduce(ends))
        query_context = context if tokens == n else int(granted.dot(ends))
        return Plan(n, n, tokens, tokens, context, context, query_context, 0, 0, granted - 1, None)

    def _mixed_plan(self) -> Plan:
        """Decodes beside prefill chunks, or sequences that got less than they wanted."""
        batch = self.batch
        granted, known, computed = batch.row(GRANTED), batch.row(KNOWN), batch.row(COMPUTED)
        emitters = np.flatnonzero(granted >= known)
        verified = granted[emitters] - known[emitters]
        ends = (computed + granted) * (granted > 0)
        decode = (known == 1) & (granted > 0)
        chunk = np.where(decode, 0, granted)
        return Plan(
            sequences=int(np.count_nonzero(granted)),
            decodes=int(np.count_nonzero(decode)),
            tokens=int(granted.sum()),
            logits=int(verified.sum()) + len(emitters),
            kv_tokens=int(ends.sum()),
            context=int(ends[decode].sum()),
            query_context=int(granted[decode].dot(ends[decode])),
            prefill_tokens=int(chunk.sum()),
            prefill_pairs=int((chunk * computed + chunk * (chunk + 1) // 2).sum()),
            verified=verified,
            emitters=emitters,
        )

    def _target_ns(self, plan: Plan) -> tuple[int, int, int]:
        """Verify pass, acceptance and host time of the step."""
        n, tokens, logits = plan.sequences, plan.tokens, plan.logits
        verify = self.cost.verify_ns(
            tokens, n, logits, plan.context, plan.query_context, plan.prefill_pairs
        )
        accept = round(self.cost.accept.ns(tokens, n, logits))
        return verify, accept, round(self.cost.host.ns(tokens, n, logits)) + self.overhead_ns

    def _accept(self, plan: Plan) -> tuple[Int64, Int64]:
        """Drafts accepted and tokens emitted (trimmed at the output length) per emitter."""
        run = self.scheduler.arena.runs.take(self._of(plan, POINTER))
        accepted = np.minimum(run, plan.verified)
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
                a[ROUNDS, :n] += plan.verified > 0
                a[DRAFTED, :n] += plan.verified
                a[ACCEPTED, :n] += accepted
            going = a[TOKENS, :n] < a[END, :n]
            return None if going.all() else np.flatnonzero(going)
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

    # -- drafting ----------------------------------------------------------------------------

    def _choose_depths(self, plan: Plan, survivors: Int64 | None, now: int) -> Depths:
        """Ask the policy, cap its answer, and give the survivors their drafts."""
        a, n = self.batch.a, self.batch.n
        if not self.policy.drafts:
            return 0
        view = self._policy_view(plan, survivors, now)
        depths = self.policy.draft_depths(view)
        if not self.behaviour.draft_past_end:
            depths = np.minimum(depths, view.remaining_tokens - 1)
        carried = depths
        if self.policy.wants_confidence:
            claims = self.scheduler.arena.claims.take(self._pointers(survivors), axis=0)
            carried = np.minimum(self.policy.verify_depths(view, depths, claims), depths)
        if survivors is None:
            a[DRAFT, :n] = carried
        else:
            a[DRAFT, :n][a[GRANTED, :n] > 0] = 0
            a[DRAFT, survivors] = carried
        return depths

    def _pointers(self, survivors: Int64 | None) -> Int64:
        pointers = self.batch.row(POINTER)
        return pointers if survivors is None else pointers[survivors]

    def _policy_view(self, plan: Plan, survivors: Int64 | None, now: int) -> Batch:
        """What the engine knows at this moment, over the sequences that will carry drafts."""
        a = self.batch.a[:, : self.batch.n] if survivors is None else self.batch.a[:, survivors]
        runs = self.scheduler.arena.runs
        return Batch(
            now_ns=now,
            scheduled=plan.sequences,
            running=self.batch.n,
            waiting=len(self.scheduler.waiting),
            step_tokens=plan.tokens,
            max_depth=self.max_depth,
            request=a[REQUEST],
            context_tokens=a[TOKENS],
            remaining_tokens=a[END] - a[TOKENS],
            cost=self.cost,
            run=runs.take(a[POINTER]).astype(np.int64) if self.policy.clairvoyant else None,
        )

    def _draft(self, plan: Plan, survivors: Int64 | None, emitted: Int64, depths: Depths) -> Drafted:
        """Run the drafter for the chosen depths; what it did and how long it took."""
        if not self.policy.drafts:
            return Drafted()
        depth = depths if isinstance(depths, int) else int(np.max(depths, initial=0))
        if depth == 0 and not self.behaviour.draft_at_depth_zero:
            return Drafted()
        rows, context, levels = self._drafted_rows(plan, survivors, depths, depth)
        over = plan.tokens
        if self.behaviour.draft_pass_over == "emitted":
            prefilled = len(emitted) - plan.decodes
            over = int(emitted.sum()) - prefilled + plan.prefill_tokens
        ns = self.cost.draft_ns(over, rows, context, plan.prefill_pairs, levels)
        further = levels if self.cost.sequential else ()
        return Drafted(
            ns=ns,
            depth=depth,
            passes=1 + sum(times for times, _, _ in further),
            first_tokens=over,
            next_tokens=sum(times * sequences for times, sequences, _ in further),
            context=context + sum(times * read for times, _, read in further),
        )

    def _drafted_rows(
        self, plan: Plan, survivors: Int64 | None, depths: Depths, depth: int
    ) -> tuple[int, int, tuple[tuple[int, int, int], ...]]:
        """Sequences and KV tokens of the drafter's first pass, and (passes, rows, KV) after it."""
        if self.behaviour.draft_for_finished:
            rows, context = plan.sequences, plan.kv_tokens
        else:
            kept = self.batch.row(TOKENS) if survivors is None else self.batch.a[TOKENS, survivors]
            rows, context = len(kept), int(kept.sum())
        if isinstance(depths, int) or self.behaviour.draft_uniformly:
            return rows, context, ((depth - 1, rows, context),) if depth > 1 else ()
        tokens = self.batch.row(TOKENS) if survivors is None else self.batch.a[TOKENS, survivors]
        reach = [(depths > level) for level in range(1, depth)]
        return rows, context, tuple((1, int(r.sum()), int(tokens[r].sum())) for r in reach)

    # -- the end of a step -------------------------------------------------------------------

    def _stamp(self, plan: Plan, end: int) -> None:
        """Note when chunks were streamed: gaps since each sequence's last one, first tokens."""
        last = self.batch.row(LAST_EMIT)
        if plan.emitters is None:
            if self._aligned:
                self.records.gaps.extend((end - int(last[0]), self.batch.n))
            else:
                self._note_gaps(end - last)
            last.fill(end)
            self._aligned = True
            return
        at = plan.emitters
        self._note_gaps(end - last[at[last[at] >= 0]])
        last[at] = end
        self._first_tokens(at, end)
        self._aligned = len(at) + self.scheduler.prefilling == self.batch.n

    def _note_gaps(self, gaps: Int64) -> None:
        values, counts = np.unique(gaps, return_counts=True)
        for value, count in zip(values.tolist(), counts.tolist(), strict=True):
            self.records.gaps.extend((value, count))

    def _first_tokens(self, emitters: Int64, end: int) -> None:
        """Sequences that emitted for the first time since their admission are prefilled now."""
        fresh = emitters[self.batch.a[FRESH, emitters] > 0]
        self.batch.a[FRESH, fresh] = 0
        self.scheduler.prefilling -= len(fresh)
        for request in self.batch.a[REQUEST, fresh].tolist():
            sequence = self.batch.live[request]
            if sequence.first_token_ns < 0:
                sequence.first_token_ns = end

    def _retire(self, survivors: Int64 | None, end: int) -> None:
        """Take finished sequences out and write down what became of them."""
        self.finished = []
        if survivors is None:
            return
        done = np.flatnonzero(self.batch.row(TOKENS) >= self.batch.row(END))
        for index in reversed(done.tolist()):
            sequence = self.scheduler.release(index)
            self.finished.append(sequence.request)
            self.records.requests.append(request_row(sequence, end))

    def _record(
        self,
        plan: Plan,
        accepted: Int64,
        emitted: Int64,
        now: int,
        target_ns: tuple[int, int, int],
        draft: Drafted,
    ) -> None:
        """Append the step's row (columns of ``STEP_COLUMNS``)."""
        verify_ns, accept_ns, host_ns = target_ns
        depth = int(plan.verified.max(initial=0)) if plan.logits > plan.decodes else 0
        self.records.steps.append(
            (
                now,
                now + verify_ns + accept_ns + host_ns + draft.ns,
                plan.sequences,
                plan.decodes,
                plan.tokens,
                plan.logits,
                plan.context,
                plan.query_context,
                plan.prefill_tokens,
                plan.prefill_pairs,
                int(np.add.reduce(plan.verified)),
                int(np.add.reduce(accepted)),
                int(np.add.reduce(emitted)),
                depth,
                draft.depth,
                draft.passes,
                draft.first_tokens,
                draft.next_tokens,
                draft.context,
                verify_ns,
                accept_ns,
                draft.ns,
                host_ns,
                len(self.scheduler.waiting),
                self.scheduler.pool.capacity - self.scheduler.pool.free,
                len(self.scheduler.preempted),
                int(not self.cost.misses_graph(plan.tokens)),
                self.cost.padded(plan.tokens),
            )
        )


def request_row(sequence: Sequence, finish_ns: int) -> tuple[int, ...]:
    """One row of ``REQUEST_COLUMNS``."""
    return (
        sequence.request,
        sequence.class_id,
        sequence.arrival_ns,
        sequence.sent_ns,
        sequence.scheduled_ns,
        sequence.first_token_ns,
        finish_ns,
        sequence.prompt_tokens,
        sequence.output_tokens,
        sequence.rounds,
        sequence.drafted,
        sequence.accepted,
        sequence.preemptions,
    )
