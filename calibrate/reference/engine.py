"""The reference engine: serves requests with real forward passes, on the clock of what they take.

A step is schedule -> verify -> accept -> commit -> choose next depths -> draft -> retire -> observe, in
vLLM's order: drafts made at the end of one step are verified in the next. One pass verifies a sequence's
last token and all its drafts. Rejected tokens are rolled back by forgetting them: their keys and values
lie behind the text and are overwritten before anything can see them.

Time is the sum of the steps' times; while there is nothing to do it jumps to the next arrival.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch

from calibrate.reference.client import Client
from calibrate.reference.clock import Clock, Stopwatch, clock_for
from calibrate.reference.drafting import Drafted, Drafting
from calibrate.reference.journal import Journal
from calibrate.reference.layout import Rows
from calibrate.reference.models import Drafter, Target
from calibrate.reference.plan import Plan
from calibrate.reference.policy import Steering
from calibrate.reference.scheduler import Scheduler
from calibrate.reference.sequence import Sequence
from calibrate.reference.serving import Request, Serving
from calibrate.reference.verdict import Forced, Judge


class Engine:
    """One engine, good for one run: models over slots, a scheduler and a policy.

    ``temperature`` 0 is greedy; ``forced`` decides acceptance instead of the models. ``texts`` holds
    prompt and output of every finished request.
    """

    def __init__(
        self,
        serving: Serving,
        target: Target,
        drafter: Drafter | None,
        steering: Steering,
        temperature: float = 0.0,
        seed: int = 0,
        forced: Forced | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.serving, self.target, self.steering = serving, target, steering
        self.drafter = drafter if steering.policy.drafts else None
        self.scheduler = Scheduler(serving, self._move)
        self.watch = Stopwatch(clock or clock_for(target.device))
        generator = torch.Generator(target.device).manual_seed(seed)
        self.judge = Judge(temperature, generator, forced)
        self.drafting = Drafting(steering, self.drafter, serving, self.scheduler, self.judge, self.watch)
        self.journal = Journal(serving.pad_queries)
        self.texts: dict[int, list[int]] = {}

    @torch.inference_mode()
    def serve(self, requests: Iterable[Request], max_concurrency: int | None = None) -> Journal:
        """Answer all requests, given in order of arrival; returns what was written down."""
        client, now = Client(requests, max_concurrency), 0
        self.watch.start_run()
        while True:
            self.scheduler.waiting.extend(client.arrived(now))
            if not self.scheduler.running and not self.scheduler.waiting:
                if client.next_arrival_ns is None:
                    return self.journal
                now = client.next_arrival_ns
                continue
            start, (now, finished) = now, self.step(now)
            assert now >= start
            self.scheduler.waiting.extend(client.arrived(now))
            for _ in range(finished):
                self.scheduler.waiting.extend(client.answered(now))

    def step(self, now: int) -> tuple[int, int]:
        """Run one step from ``now``; returns its end, and how many requests finished in it."""
        plan = self.scheduler.schedule(now)
        self._verify(plan)
        self._commit(plan)
        drafted = self.drafting.run(plan, now)
        done = self.scheduler.retire()
        end = self.journal.step(plan, drafted, now, self.spent(plan, drafted), self._held(done))
        self.journal.stamp(plan, end)
        for sequence in done:
            self.journal.finish(sequence, end)
            self.texts[sequence.request.number] = sequence.text
        self._observe(plan, end - now)
        return end, len(done)

    def spent(self, plan: Plan, drafted: Drafted) -> dict[str, int]:
        """Nanoseconds of the step by kind of work; a subclass may state them instead of measuring."""
        self.watch.lap("host")
        return self.watch.take()

    def _verify(self, plan: Plan) -> None:
        """One pass of the target over everything scheduled, and the verdict on its drafts."""
        rows = plan.in_slots
        shape = Rows(
            [row.sequence.slot for row in rows],
            [row.start for row in rows],
            [row.granted for row in rows],
            len(plan.decodes),
        )
        wanted = [
            offset + row.known - 1 + j
            for row, offset in zip(rows, shape.offsets, strict=True)
            if row.emits
            for j in range(row.verified + 1)
        ]
        laid = self.target.lay_out(shape, wanted)
        ids = torch.tensor([token for row in rows for token in row.ids], device=self.target.device)
        self.watch.lap("host")
        logits = self.target.run(laid, ids)
        self.watch.lap("verify")
        self.judge.decide(plan, logits)
        self.watch.lap("accept")

    def _commit(self, plan: Plan) -> None:
        """Keep what was accepted, forget what was rejected, count."""
        for row in plan.rows:
            sequence = row.sequence
            sequence.computed = len(sequence.text) - 1 if row.emits else row.end
            if row.verified:
                sequence.rounds += 1
                sequence.drafted += row.verified
                sequence.accepted += row.accepted

    def _observe(self, plan: Plan, took_ns: int) -> None:
        if not self.steering.policy.wants_outcomes:
            return
        rows = plan.emitters
        columns = [(row.sequence.request.number, row.verified, row.accepted) for row in rows]
        request, drafted, accepted = np.array(columns, dtype=np.int64).reshape(-1, 3).T
        self.steering.policy.observe(
            self.steering.outcome(
                step_ns=took_ns,
                request=request,
                drafted=drafted,
                accepted=accepted,
                prefill_tokens=plan.prefill_tokens,
            )
        )

    def _held(self, done: list[Sequence]) -> int:
        """Slots held after scheduling."""
        return len(self.scheduler.running) + len(done)

    def _move(self, source: int, to: int, sequence: Sequence) -> None:
        self.target.move(source, to, sequence.computed)
        if self.drafter is not None:
            self.drafter.move(source, to, sequence.drafter_computed)
