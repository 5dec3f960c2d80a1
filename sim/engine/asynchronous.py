"""Asynchronous scheduling: a step is scheduled when the one before it begins.

Two things follow. A request that comes while a step runs finds the next one scheduled, and is in the one
after it at the earliest. And a sequence that ends in a step is computed once more, for nothing, unless the
scheduler knew beforehand that it would end there: at a limit on the answer's length, if even a round that
accepts no draft reaches it (vllm/v1/engine/core.py, ``step_with_batch_queue``, and ``schedule`` of
vllm/v1/core/sched/scheduler.py; 0.24 and 0.32).

What a sequence held is free one step earlier here than there.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, NamedTuple

import numpy as np
import simpy

from sim.engine.batch import DRAFT, END, GRANTED, KNOWN, TOKENS, Int64, Sequence
from sim.engine.plan import Plan, mixed_plan
from sim.engine.prefill_first import PrefillFirst
from sim.engine.replica import Replica


class Ghost(NamedTuple):
    """A sequence that ended and is in the next step all the same: its tokens there, and its KV tokens."""

    tokens: int
    context: int


class AsyncReplica(Replica):
    """A replica that learns of a request, and of an end, one step late."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._unseen: list[Sequence] = []
        """Came since the next step was scheduled."""
        self._seen_late: list[Sequence] = []
        """Came after this step was scheduled and before the next one was."""
        self._ghosts: list[Ghost] = []
        self._certain: Int64 = np.zeros(0, dtype=np.int64)

    # -- the outside -------------------------------------------------------------------------

    def submit(self, sequence: Sequence) -> None:
        """Queue one request; while a step runs it is not seen yet. An idle replica starts at once."""
        if self._wake is None:
            self._unseen.append(sequence)
        else:
            super().submit(sequence)

    def run(self) -> Generator[simpy.Event, None, None]:
        """The SimPy process: when a step ends, the step after the next is scheduled."""
        while True:
            if not self._busy():
                self.scheduler.waiting.extend((*self._seen_late, *self._unseen))
                self._seen_late, self._unseen = [], []
            if not self._busy():
                self._rest()
                self._wake = self.env.event()
                yield self._wake
                self._wake = None
            yield self.env.timeout(self.step(int(self.env.now)))
            self._seen_late, self._unseen = [*self._seen_late, *self._unseen], []
            for request in self.finished:
                self.done(request)
            if self._leaving:
                self._let_go()

    def _busy(self) -> bool:
        """Whether there is anything to compute."""
        return bool(self.batch.n or self.scheduler.waiting or self._ghosts)

    def _let_go(self) -> None:
        """Drop the requests whose clients went away, those that no step has seen among them."""
        gone = set(self._leaving)
        unseen = [each.request for each in (*self._seen_late, *self._unseen) if each.request in gone]
        self._seen_late = [each for each in self._seen_late if each.request not in gone]
        self._unseen = [each for each in self._unseen if each.request not in gone]
        super()._let_go()
        for request in unseen:
            self.done(request)

    # -- one step ----------------------------------------------------------------------------

    def _plan(self) -> Plan:
        """Sum up what the scheduler granted, ended sequences included; then it sees who came meanwhile."""
        self.scheduler.waiting.extend(self._seen_late)
        self._seen_late = []
        plan = super()._plan() if self.batch.n else mixed_plan(self.batch, self.pad_queries)
        if self.host.engine.answers_end == "limit":
            self._certain = np.flatnonzero(self.batch.row(TOKENS) + 1 >= self.batch.row(END))
        ghosts, self._ghosts = self._ghosts, []
        # Where prompts have steps of their own, who has ended is known by the next step of decodes.
        prompts_alone = isinstance(self.scheduler, PrefillFirst) and plan.prefill_tokens > 0
        return _with_ghosts(plan, ghosts) if ghosts and not prompts_alone else plan

    def _retire(self, survivors: Int64 | None, end: int) -> None:
        """Take finished sequences out; those that ended unforeseen are in the next step all the same."""
        if survivors is not None:
            a = self.batch.a
            ended = np.flatnonzero(self.batch.row(TOKENS) >= self.batch.row(END))
            padded = self.pad_depths and len(ended) < self.batch.n
            for i in np.setdiff1d(ended, self._certain).tolist():
                drafts = int(self.batch.row(DRAFT).max() if padded else max(a[GRANTED, i] - a[KNOWN, i], 0))
                self._ghosts.append(Ghost(1 + drafts, int(a[TOKENS, i]) + drafts))
        super()._retire(survivors, end)


def _with_ghosts(plan: Plan, ghosts: list[Ghost]) -> Plan:
    """The step with those that it computes for nothing; their drafts count as pads."""
    tokens, context = sum(each.tokens for each in ghosts), sum(each.context for each in ghosts)
    return plan._replace(
        sequences=plan.sequences + len(ghosts),
        decodes=plan.decodes + len(ghosts),
        tokens=plan.tokens + tokens,
        logits=plan.logits + tokens,
        kv_tokens=plan.kv_tokens + context,
        context=plan.context + context,
        query_context=plan.query_context + sum(each.tokens * each.context for each in ghosts),
        pads=plan.pads + tokens,
        ghosts=len(ghosts),
    )
