"""What a replica writes down as it goes: requests, steps, and gaps between streamed chunks."""

from __future__ import annotations

from array import array

import numpy as np

from sim.engine.batch import END, FIRST, FRESH, LAST_EMIT, REQUEST, SENT, TOKENS, Int64, Sequence
from sim.engine.drafting import Drafted
from sim.engine.plan import Plan
from sim.engine.scheduler import Scheduler
from sim.results.records import REQUEST_COLUMNS, STEP_COLUMNS, RequestRow, StepRow, Table


class Journal:
    """The records of one replica.

    ``gaps`` pools (gap in ns, how often, when) over all requests. ``keep_steps`` can be turned off
    when nobody will read them. ``more`` names step columns that only some engines or models have.
    A chunk holds ``stream_interval`` tokens or more, but for a request's first and last.
    """

    def __init__(
        self, scheduler: Scheduler, keep_steps: bool, more: tuple[str, ...] = (), stream_interval: int = 1
    ) -> None:
        self.scheduler, self.keep_steps, self.interval = scheduler, keep_steps, stream_interval
        self.requests, self.steps = Table(REQUEST_COLUMNS), Table((*STEP_COLUMNS, *more))
        self.gaps = array("q")
        self._aligned = True

    def stamp(self, plan: Plan, end: int) -> None:
        """Note when chunks were streamed: gaps since each sequence's last one, first tokens."""
        batch = self.scheduler.batch
        last = batch.a[LAST_EMIT, : batch.n]
        if self.interval > 1:
            self._stamp_chunks(np.arange(batch.n) if plan.emitters is None else plan.emitters, end)
            return
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

    def _stamp_chunks(self, emitters: Int64, end: int) -> None:
        """Stream what was held back where it makes a chunk: enough tokens, or the first or last of all.

        As vllm/v1/engine/output_processor.py does under ``--stream-interval`` (0.32).
        """
        a = self.scheduler.batch.a
        tokens, last = a[TOKENS, emitters], a[LAST_EMIT, emitters]
        due = (last < 0) | (tokens - a[SENT, emitters] >= self.interval) | (tokens >= a[END, emitters])
        self._note_gaps(end - last[due & (last >= 0)], end)
        a[LAST_EMIT, emitters[due]], a[SENT, emitters[due]] = end, tokens[due]
        self._first_tokens(emitters, end)

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
        first = batch.a[FIRST]
        first[fresh] = np.where(first[fresh] < 0, end, first[fresh])

    def finish(self, sequence: Sequence, end: int) -> None:
        """Append the row of a finished request."""
        self.requests.append(
            RequestRow(
                request=sequence.request,
                class_id=sequence.class_id,
                arrival_ns=sequence.arrival_ns,
                sent_ns=sequence.sent_ns,
                scheduled_ns=sequence.scheduled_ns,
                first_token_ns=sequence.first_token_ns,
                finish_ns=end,
                prompt_tokens=sequence.prompt_tokens,
                output_tokens=sequence.output_tokens,
                rounds=sequence.rounds,
                drafted=sequence.drafted,
                accepted=sequence.accepted,
                preemptions=sequence.preemptions,
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
        launch: tuple[int, int],
        more: tuple[int, ...] = (),
    ) -> None:
        """Append the row of a step; ``launch`` is its graph and its padded tokens."""
        if not self.keep_steps:
            return
        verify_ns, accept_ns, host_ns = target_ns
        drafted = plan.logits - len(plan.verified) - plan.pads
        row = StepRow(
            start_ns=start,
            end_ns=start + verify_ns + accept_ns + host_ns + draft.ns,
            sequences=plan.sequences,
            decodes=plan.decodes,
            tokens=plan.tokens,
            logits=plan.logits,
            context_tokens=plan.context,
            query_context_tokens=plan.query_context,
            prefill_tokens=plan.prefill_tokens,
            prefill_pairs=plan.prefill_pairs,
            drafted=drafted,
            accepted=int(np.add.reduce(accepted)),
            emitted=int(np.add.reduce(emitted)),
            depth=int(np.maximum.reduce(plan.verified)) if drafted else 0,
            next_depth=draft.depth,
            draft_passes=draft.passes,
            draft_first_tokens=draft.first_tokens,
            draft_next_tokens=draft.next_tokens,
            draft_context_tokens=draft.context,
            verify_ns=verify_ns,
            accept_ns=accept_ns,
            draft_ns=draft.ns,
            host_ns=host_ns,
            waiting=len(self.scheduler.waiting),
            kv_blocks=self.scheduler.pool.held,
            preempted=len(self.scheduler.preempted),
            graph=launch[0],
            padded_tokens=launch[1],
        )
        self.steps.append((*row, *more) if more else row)
