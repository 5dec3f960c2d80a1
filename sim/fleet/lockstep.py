"""Data-parallel ranks of one engine: they step together, and wait for the slowest.

As vLLM runs mixture-of-experts models with ``--data-parallel-size`` (vllm/v1/engine/core.py,
``DPEngineCoreProc``, and vllm/v1/worker/dp_utils.py, 0.32): while one rank has anything to compute, ranks
with nothing run a dummy step of one token; all ranks are padded to the tokens of the largest, and the
least graph mode of any is everybody's.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Final

import simpy

from sim.cost.graphs import EAGER, FULL, MIXED, PIECEWISE
from sim.engine.plan import Plan
from sim.fleet.node import Node

_ORDER: Final = (EAGER, PIECEWISE, FULL)
Launch = tuple[int, int]


class Lockstep:
    """Steps of several replicas at once; a step of each lasts as long as the longest."""

    def __init__(self, env: simpy.Environment, ranks: Sequence[Node]) -> None:
        self.env, self.ranks = env, ranks

    def run(self) -> Generator[simpy.Event, None, None]:
        """The SimPy process: one timeout per round, asleep while no rank has anything to compute."""
        while True:
            busy = [rank for rank in self.ranks if not rank.rests()]
            if not busy:
                wake = self.env.event()
                self._sleep(wake)
                yield wake
                self._sleep(None)
                continue
            yield self.env.timeout(self.round(busy, int(self.env.now)))
            for rank in self.ranks:
                rank.tell()

    def _sleep(self, wake: simpy.Event | None) -> None:
        for rank in self.ranks:
            rank.sleep(wake)

    def round(self, busy: Sequence[Node], now: int) -> int:
        """One step of every rank that has anything to compute; returns how long it takes all of them."""
        idle = [rank for rank in self.ranks if rank not in busy]
        for rank in idle:
            rank.finished = []
        plans = [rank.begin(now) for rank in busy]
        most = max(plan.tokens for plan in plans)
        launch = self._joint(busy, plans, idle, most)
        steps = [
            rank.compute(plan, launch if launch[0] != EAGER else (EAGER, plan.tokens), now)
            for rank, plan in zip(busy, plans, strict=True)
        ]
        dummies = [
            rank.cost.verify_ns(1, 1, 1, 0, 0, 0, launch if launch[0] != EAGER else (EAGER, 1))
            for rank in idle
        ]
        took = max([*(step.took_ns for step in steps), *dummies])
        for rank, step in zip(busy, steps, strict=True):
            rank.end(step, now, took - step.took_ns)
            rank.steps_ns += took
        return took

    def _joint(
        self, busy: Sequence[Node], plans: Sequence[Plan], idle: Sequence[Node], tokens: int
    ) -> Launch:
        """The least graph mode of all ranks at the tokens of the largest, and what that is padded to."""
        asked = [
            rank.cost.launch(tokens, MIXED if rank.cost.graphs.plain else plan.uniform_depth)
            for rank, plan in zip(busy, plans, strict=True)
        ]
        asked += [rank.cost.launch(tokens, MIXED if rank.cost.graphs.plain else 0) for rank in idle]
        least = min((mode for mode, _ in asked), key=_ORDER.index)
        return least, max(padded for mode, padded in asked if mode == least)
