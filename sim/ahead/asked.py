"""Replicas whose policy is asked in every step: the step's two halves compiled, the question between them.

All else is the stepping replica's: the SimPy process, and what the policy is shown.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import simpy

from sim.acceptance.base import Path
from sim.ahead import layout as at
from sim.ahead.layout import Int64, World
from sim.ahead.ledger import Ledger
from sim.ahead.world import build_world, draw_more
from sim.engine.batch import END, REQUEST, TOKENS, Sequence
from sim.engine.replica import Replica
from sim.engine.simulate import Setup, build_replica
from sim.errors import SimulationError
from sim.policies.base import Claims, Outcome, Policy
from sim.results.run_records import RunRecords


class AskedReplica(Replica):
    """A replica whose batch, queue and memory are a world's; ``open`` must be called before it runs."""

    def open(self, setup: Setup) -> None:
        """Take up the requests of a run."""
        from sim.ahead import kernel

        self.kernel, self.setup, self.ledger = kernel, setup, Ledger(self.host.more)
        self._take(build_world(setup, self))
        self.policy_learns = self.policy.wants_outcomes
        self.batch.a = self.world.a[0]
        self.state = self.world.s[0]
        self.scheduler.waiting = _Queue(self)  # type: ignore[assignment]
        if self.policy.wants_confidence:
            self.claims = _Claims(self)
            self.scheduler.arena.claims = self.claims  # type: ignore[assignment]

    def _take(self, world: World) -> None:
        self.world = world
        self.scheduler.arena.runs = world.runs[0]
        self.scheduler.arena.found = world.runs[1].view(np.bool_) if len(world.runs) > 1 else None

    def records(self) -> RunRecords:
        """What the replica wrote down."""
        self.ledger.take(self.world)
        return self.ledger.records(self.setup, self.world)

    def submit(self, sequence: Sequence) -> None:
        """Queue one request; an idle replica starts at once."""
        while sequence.request >= self.world.k[at.DRAWN]:
            self._take(draw_more(self.setup, self.world))
        self.kernel.receive(self.world, 0, sequence.request, sequence.sent_ns)
        if self._wake is not None and not self._wake.triggered:
            self._wake.succeed()

    def _rest(self) -> None:
        self.state[at.DEVICE_NS] = 0

    def _let_go(self) -> None:
        for request in self._leaving:
            if self.kernel.drop(self.world, 0, request):
                self.batch.n = int(self.state[at.N])
                if self.policy.wants_confidence:
                    self.claims.drop(request)
                self.done(request)
        self._leaving = []

    def step(self, now: int) -> int:
        """Run one step that starts at ``now``; returns its latency in ns."""
        world, s, k = self.world, self.state, self.world.k
        if k[at.STEPS] >= world.steps.shape[1] or k[at.GAPS] + world.a.shape[2] >= len(world.gaps):
            self.ledger.take(world)
        s[at.NOW] = now
        if not self.kernel.begin(world, 0):
            raise SimulationError(f"a step at {now} ns has nothing to compute")
        self.batch.n = int(s[at.N])
        if self.policy.wants_confidence:
            self.claims.keep()
        outcome = self._outcome() if self.policy_learns else None
        depth, ragged = self._ask(now)
        self.kernel.finish(world, 0, depth, ragged)
        self.finished = world.a[0, at.LEFT, : s[at.FINISHED]].tolist()
        self.batch.n = int(s[at.N])
        if self.policy.wants_confidence:
            for request in self.finished:
                self.claims.drop(request)
        latency = int(s[at.END]) - now
        if outcome is not None:
            outcome.step_ns = latency
            self.policy.observe(outcome)
        return latency

    def _ask(self, now: int) -> tuple[int, bool]:
        """The depth that the drafter runs to, and whether depths are each sequence's own."""
        s = self.state
        if s[at.OVERRUNS]:
            return self.drafting.max_depth, False
        if self.policy.wants_progress:
            self.scheduler.pool.free = int(s[at.FREE])
            self.scheduler.prefilling = int(s[at.PREFILLING])
        survivors = None if s[at.SURVIVORS] == s[at.N] else self._survivors()
        plan = SimpleNamespace(sequences=int(s[at.SEQUENCES]), tokens=int(s[at.TOKENS_IN]))
        depths = self.drafting.choose(plan, survivors, now)  # type: ignore[arg-type]
        if isinstance(depths, int):
            return depths, False
        row = self.batch.row(at.WANT)
        row[slice(None) if survivors is None else survivors] = depths
        return int(np.max(depths, initial=0)), True

    def _survivors(self) -> Int64:
        """Columns of the sequences that emitted and go on."""
        batch = self.batch
        going = (batch.row(at.VERIFIED) >= 0) & (batch.row(TOKENS) < batch.row(END))
        return np.flatnonzero(going)

    def _outcome(self) -> Outcome:
        """What the policy learns of the step, but for how long it took."""
        a, n, s = self.batch.a, self.batch.n, self.state
        at_end = slice(None, n) if s[at.EMITTERS] == n else np.flatnonzero(a[at.VERIFIED, :n] >= 0)
        request, verified, took = (a[row, at_end].copy() for row in (REQUEST, at.VERIFIED, at.TOOK))
        return Outcome(0, request, verified, took, int(s[at.PREFILL]))


def open_replica(env: simpy.Environment, setup: Setup, policy: Policy) -> AskedReplica:
    """A replica for one run; raises ``InputError`` if nothing fits."""
    replica = build_replica(env, setup, policy, make=AskedReplica)
    assert isinstance(replica, AskedReplica)
    replica.open(setup)
    return replica


class _Queue:
    """The waiting requests, as a scheduler's queue is looked at."""

    def __init__(self, replica: AskedReplica) -> None:
        self.replica = replica

    def __len__(self) -> int:
        return int(self.replica.state[at.WAITING])

    def __iter__(self) -> Iterator[SimpleNamespace]:
        q, request = self.replica.world.q, int(self.replica.state[at.HEAD])
        for _ in range(len(self)):
            tokens = int(q[request, at.Q["prompt_tokens"]] + q[request, at.PRODUCED])
            yield SimpleNamespace(tokens=tokens)
            request = int(q[request, at.LINK])


class _Claims:
    """Confidences of the sequences that were admitted, one row of fixed width each."""

    def __init__(self, replica: AskedReplica) -> None:
        self.replica = replica
        q = replica.world.q
        self.width = int(q[:, at.Q["output_tokens"]].max(initial=0)) + 1
        self.start = q[:, at.START]
        self.row = np.full(len(q), -1, dtype=np.int64)
        self.free: list[int] = []
        self.claims: Claims = np.zeros((0, 1), dtype=np.float32)

    def keep(self) -> None:
        """Draw the claims of those that were admitted in this step."""
        batch, s = self.replica.batch, self.replica.state
        for request in batch.a[REQUEST, s[at.OLD] : s[at.N]].tolist():
            if self.row[request] < 0:
                self._put(request)

    def _put(self, request: int) -> None:
        claims = self._path(request).confidence()
        if not len(self.claims):
            self.claims = np.zeros((0, claims.shape[1]), dtype=np.float32)
        if not self.free:
            rows = len(self.claims) // self.width
            self.free = list(range(2 * rows + 7, rows - 1, -1))
            more = np.zeros(((rows + 8) * self.width, self.claims.shape[1]), dtype=np.float32)
            self.claims = np.concatenate([self.claims, more])
        self.row[request] = self.free.pop()
        first = self.row[request] * self.width
        self.claims[first : first + len(claims)] = claims

    def _path(self, request: int) -> Path:
        q = self.replica.world.q[request]
        class_id, *lengths = (int(q[at.Q[name]]) for name in ("class_id", "prompt_tokens", "output_tokens"))
        return self.replica.setup.processes[class_id].path(request, *lengths)

    def drop(self, request: int) -> None:
        """Free the row of a request."""
        if self.row[request] >= 0:
            self.free.append(int(self.row[request]))
            self.row[request] = -1

    def take(self, pointers: Int64, axis: int) -> Claims:
        """Claims where the sequences stand, shape (sequences, max_depth)."""
        requests = np.searchsorted(self.start, pointers, side="right") - 1
        at_row = self.row[requests] * self.width + pointers - self.start[requests]
        return self.claims.take(at_row, axis=axis)
