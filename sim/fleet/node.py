"""A replica of a live fleet: it may fail, slow down, drain, or hand its requests on after the prompt."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Final

import numpy as np
import simpy

from sim.acceptance.base import Path
from sim.engine.batch import (
    END,
    HELD,
    LAST_EMIT,
    POINTER,
    PROMPT,
    REQUEST,
    TOKENS,
    Int64,
    Sequence,
)
from sim.engine.drafting import Drafted
from sim.engine.journal import Journal
from sim.engine.plan import Plan
from sim.engine.replica import Replica
from sim.fleet.config import Role
from sim.fleet.thinned import Thinned
from sim.policies.base import Policy
from sim.results.fleet_record import State

_REBUILD_AT_ONCE: Final = 2048
"""Prompt tokens in one pass of a drafter that rebuilds its KV."""


class Retelling(Journal):
    """A journal that knows which tokens clients have already: chunks count from the first new one.

    A request that is computed again from the start emits tokens that were streamed before; they
    make no chunk and no first token.
    """

    repeating: frozenset[int] = frozenset()
    """Requests here that may still be behind what their clients have."""

    def stamp(self, plan: Plan, end: int) -> None:
        """As ever, unless somebody repeats itself."""
        if not self.repeating:
            super().stamp(plan, end)
            return
        batch = self.scheduler.batch
        at = np.arange(batch.n) if plan.emitters is None else plan.emitters
        had = [batch.live[request].streamed for request in batch.a[REQUEST, at].tolist()]
        new = at[batch.a[TOKENS, at] - batch.a[PROMPT, at] > np.array(had, dtype=np.int64)]
        last = batch.a[LAST_EMIT]
        if self.interval > 1:
            self._stamp_chunks(new, end)
        else:
            self._note_gaps(end - last[new[last[new] >= 0]], end)
            last[new] = end
        self._first_tokens(at, end)
        self._aligned = False
        self.repeating -= set(batch.a[REQUEST, new].tolist())


class Node(Replica):
    """A replica with a number, a role and a state.

    ``wanted`` gives a request's output tokens; one that finishes here with fewer is passed on with
    ``pass_on``, and its KV stays ``parked`` until ``unpark``. ``lost`` is called with what a failure
    costs, ``elsewhere`` with requests whose clients leave and that are not here any more.
    """

    journal: Retelling
    journal_type = Retelling
    number = 0
    role: Role = "both"
    state = State.OPEN
    pace = 1.0
    """How much longer than usual steps take."""
    falling = False
    """Whether it fails at the end of the step that runs."""
    loss: float | None = None
    """Share of accepted drafts lost where the drafter's KV is missing; ``None``: it is rebuilt."""
    seed = 0
    steps_ns = 0
    """Time in steps so far, those that run now whole."""
    wanted: Callable[[int], int]
    pass_on: Callable[[Sequence], None]
    lost: Callable[[list[Sequence]], None]
    elsewhere: Callable[[int], None]

    def settle(self, number: int, role: Role, state: State) -> None:
        """Take a place in a fleet."""
        self.number, self.role, self.state = number, role, state
        self.parked: dict[int, int] = {}
        self.bare: set[int] = set()
        """Requests whose KV came here without the drafter's."""
        self.rebuilding: list[int] = []
        self._draw, self.scheduler.draw = self.scheduler.draw, self._begin
        self._handed: list[Sequence] = []

    @property
    def drafts(self) -> bool:
        """Whether its drafter keeps KV."""
        drafter = self.cost.drafter
        return self.policy.drafts and drafter is not None and drafter.kind != "ngram"

    @property
    def kv_share(self) -> float:
        """Share of the KV blocks that are held."""
        return self.scheduler.pool.held / self.scheduler.pool.capacity

    def cached_tokens(self, sequence: Sequence) -> int:
        """Tokens of a request that the prefix cache would save."""
        cache = self.scheduler.cache
        return 0 if cache is None else len(cache.look_up(sequence)) * self.scheduler.block_size

    def renew(self, policy: Policy) -> None:
        """Start afresh: a policy that has learned nothing."""
        self.policy = self.drafting.policy = policy

    # -- the process -------------------------------------------------------------------------

    def run(self) -> Generator[simpy.Event, None, None]:
        """One timeout per step; asleep while nothing can run."""
        while True:
            if self.falling:  # it failed before it ever ran
                self._fall()
            if self.rests():
                wake = self.env.event()
                self.sleep(wake)
                yield wake
                self.sleep(None)
                continue
            took = self.step(int(self.env.now))
            self.steps_ns += took
            yield self.env.timeout(took)
            self.tell()

    def rests(self) -> bool:
        """Nothing runs, and nothing waits that would fit beside what is parked."""
        scheduler = self.scheduler
        if self.batch.n or not scheduler.waiting:
            return not self.batch.n
        if not self.parked:
            return False
        head = scheduler.waiting[0]
        hits, computed = scheduler._found(head)
        return not scheduler._fits(head, max(head.tokens, computed + 1), hits)

    def tell(self) -> None:
        """What the step that ends brought about: answers, requests to pass on, departures, a failure."""
        for request in self.finished:
            self.done(request)
        handed, self._handed = self._handed, []
        for sequence in handed:
            self.pass_on(sequence)
        if self._leaving:
            self._let_go()
        if self.falling:
            self._fall()

    def sleep(self, wake: simpy.Event | None) -> None:
        """Wait for an event that something new succeeds; ``None``: awake."""
        if wake is not None:
            self._rest()
        self._wake = wake

    def submit(self, sequence: Sequence) -> None:
        """Queue one request."""
        if sequence.streamed:
            self.journal.repeating |= {sequence.request}
        super().submit(sequence)

    def abort(self, request: int) -> None:
        """Drop one request at the end of the step that runs; at once if none does."""
        super().abort(request)
        if self._wake is not None:
            self._let_go()

    def _let_go(self) -> None:
        leaving, self._leaving = self._leaving, []
        for request in leaving:
            if self.scheduler.drop(request):
                self.journal.repeating -= {request}
                self.done(request)
            else:
                self.elsewhere(request)
        self._stir()

    def _stir(self) -> None:
        """Look again whether something can run."""
        if self._wake is not None and not self._wake.triggered:
            self._wake.succeed()

    def _begin(self, sequence: Sequence) -> Path:
        """A request's future as it is first admitted here; KV that came with it is on the device now."""
        path, came = self._draw(sequence), sequence.kept_tokens
        sequence.kept_tokens = 0
        if sequence.request not in self.bare:
            return path
        self.bare.remove(sequence.request)
        if self.loss is not None:
            return Thinned(path, sequence, self.seed, self.loss, self.drafting.max_depth)
        self.rebuilding.append(came)
        return path

    # -- handing on --------------------------------------------------------------------------

    def unpark(self, request: int) -> None:
        """Free the KV of a request that is gone from here."""
        self.scheduler.pool.release(request, self.parked.pop(request))
        self._stir()

    def _retire(self, survivors: Int64 | None, end: int) -> None:
        if self.role != "prefill":
            super()._retire(survivors, end)
            return
        self.finished = []
        if survivors is None:
            return
        done = np.flatnonzero(self.batch.row(TOKENS) >= self.batch.row(END))
        for gone, index in enumerate(done.tolist()):
            self._part(index - gone, end)

    def _part(self, index: int, end: int) -> None:
        """A request that emitted all it may here: answered, or passed on with its KV kept."""
        held, pointer, request = self.batch.a[[HELD, POINTER, REQUEST], index].tolist()
        if self.batch.live[request].output_tokens >= self.wanted(request):
            sequence = self.scheduler.release(index)
            self.finished.append(request)
            self.journal.finish(sequence, end)
            return
        sequence = self.batch.remove(index)
        self.scheduler.arena.drop(pointer)
        self.parked[request] = held
        self._handed.append(sequence)

    # -- what befalls it ---------------------------------------------------------------------

    def fail(self) -> None:
        """Lose everything, at the end of the step that runs if one does."""
        self.falling = True
        if self._wake is not None:
            self._fall()

    def _fall(self) -> None:
        self.falling = False
        self.lost(self.evict())

    def evict(self) -> list[Sequence]:
        """Running and waiting requests, in order; no memory is held or cached afterwards."""
        scheduler = self.scheduler
        lost = [scheduler.release(0) for _ in range(self.batch.n)]
        scheduler.prefilling = 0
        waiting = list(scheduler.waiting)
        for sequence in waiting:
            if sequence.kept_tokens:
                scheduler.drop(sequence.request)
        scheduler.waiting.clear()
        for request in list(self.parked):
            self.unpark(request)
        self._rest()
        pool = scheduler.pool
        pool.take(free := pool.free)
        pool.give(free)
        self.journal.repeating = frozenset()
        self.bare.clear()
        return [*lost, *waiting]

    def _target_ns(self, plan: Plan, launch: tuple[int, int]) -> tuple[int, int, int]:
        """A slow replica's delay counts as host time, so that what the passes cost stays what it is."""
        verify, accept, host = super()._target_ns(plan, launch)
        return verify, accept, host + round((self.pace - 1) * (verify + accept + host))

    def _draft(self, plan: Plan, survivors: Int64 | None, emitted: Int64, now: int) -> Drafted:
        drafted = super()._draft(plan, survivors, emitted, now)
        extra = sum(map(self._rebuild_ns, self.rebuilding))
        self.rebuilding = []
        if not extra and self.pace == 1:
            return drafted
        return drafted._replace(ns=round(self.pace * (drafted.ns + extra)))

    def _rebuild_ns(self, tokens: int) -> int:
        """The drafter over a prompt whose KV in it did not come along, in passes of bounded size."""
        most = min(_REBUILD_AT_ONCE, self.scheduler.budget)
        starts = range(0, tokens, most)
        sizes = [min(most, tokens - start) for start in starts]
        return sum(
            self.cost.draft_ns(size, 1, 0, 0, size * start + size * (size + 1) // 2, ())
            for start, size in zip(starts, sizes, strict=True)
        )
