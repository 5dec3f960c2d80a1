"""What a replica writes down as it goes: requests, steps, and gaps between streamed chunks."""

from __future__ import annotations

from array import array

import numpy as np

from sim.cost.step_cost import StepCost
from sim.engine.batch import FRESH, LAST_EMIT, REQUEST, Int64, Sequence
from sim.engine.drafting import Drafted
from sim.engine.plan import Plan
from sim.engine.scheduler import Scheduler
from sim.results.records import REQUEST_COLUMNS, STEP_COLUMNS, Table


class Journal:
    """The records of one replica.

    ``gaps`` pools (gap in ns, how often, when) over all requests. ``keep_steps`` can be turned off
    when nobody will read them.
    """

    def __init__(self, scheduler: Scheduler, keep_steps: bool) -> None:
        self.scheduler, self.keep_steps = scheduler, keep_steps
        self.requests, self.steps = Table(REQUEST_COLUMNS), Table(STEP_COLUMNS)
        self.gaps = array("q")
        self._aligned = True

    def stamp(self, plan: Plan, end: int) -> None:
        """Note when chunks were streamed: gaps since each sequence's last one, first tokens."""
        batch = self.scheduler.batch
        last = batch.a[LAST_EMIT, : batch.n]
        if plan.emitters is None:
            if self._aligned:
                self.gaps.extend((end - int(last[0]), batch.n, end))
            else:
                self._note_gaps(end - last, end)
            last.fill(end)
            self._aligned = True
            return
        at = plan.emitters
        self._note_gaps(end - last[at[last[at] >= 0]], end)
        last[at] = end
        self._first_tokens(at, end)
        self._aligned = len(at) + self.scheduler.prefilling == batch.n

    def _note_gaps(self, gaps: Int64, end: int) -> None:
        values, counts = np.unique(gaps, return_counts=True)
        for value, count in zip(values.tolist(), counts.tolist(), strict=True):
            self.gaps.extend((value, count, end))

    def _first_tokens(self, emitters: Int64, end: int) -> None:
        """Sequences that emitted for the first time since their admission are prefilled now."""
        batch = self.scheduler.batch
        fresh = emitters[batch.a[FRESH, emitters] > 0]
        batch.a[FRESH, fresh] = 0
        self.scheduler.prefilling -= len(fresh)
        for request in batch.a[REQUEST, fresh].tolist():
            sequence = batch.live[request]
            if sequence.first_token_ns < 0:
                sequence.first_token_ns = end

    def finish(self, sequence: Sequence, end: int) -> None:
        """Append the row of a finished request (columns of ``REQUEST_COLUMNS``)."""
        self.requests.append(
            (
                sequence.request,
                sequence.class_id,
                sequence.arrival_ns,
                sequence.sent_ns,
                sequence.scheduled_ns,
                sequence.first_token_ns,
                end,
                sequence.prompt_tokens,
                sequence.output_tokens,
                sequence.rounds,
                sequence.drafted,
                sequence.accepted,
                sequence.preemptions,
            )
        )

    def step(
        self,
        plan: Plan,
        accepted: Int64,
        emitted: Int64,
        start: int,
        target_ns: tuple[int, int, int],
        draft: Drafted,
        cost: StepCost,
    ) -> None:
        """Append the row of a step (columns of ``STEP_COLUMNS``)."""
        if not self.keep_steps:
            return
        verify_ns, accept_ns, host_ns = target_ns
        drafted = plan.logits - len(plan.verified)
        self.steps.append(
            (
                start,
                start + verify_ns + accept_ns + host_ns + draft.ns,
                plan.sequences,
                plan.decodes,
                plan.tokens,
                plan.logits,
                plan.context,
                plan.query_context,
                plan.prefill_tokens,
                plan.prefill_pairs,
                drafted,
                int(np.add.reduce(accepted)),
                int(np.add.reduce(emitted)),
                int(plan.verified.max()) if drafted else 0,
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
                self.scheduler.pool.held,
                len(self.scheduler.preempted),
                int(not cost.misses_graph(plan.tokens)),
                cost.padded(plan.tokens),
            )
        )
