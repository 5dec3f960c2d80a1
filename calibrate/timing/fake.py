"""A bench and a clock that cost what a formula says: campaigns, fits and files without a machine.

``FakeBench`` prepares runs that spend time on a ``FakeClock``; ``fake_timer`` reads that clock
through the same code that times a CPU.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from calibrate.cells import Cell, PassName
from calibrate.grid import pass_cell
from calibrate.timing.cpu import CpuTimer
from calibrate.timing.timer import Run

Cost = Callable[[Cell], float]
"""Microseconds of a cell."""


@dataclass
class FakeClock:
    """Seconds that pass only when they are spent."""

    seconds: float = 0.0

    def now(self) -> float:
        """Seconds spent so far."""
        return self.seconds

    def spend(self, seconds: float) -> None:
        """Let time pass."""
        self.seconds += seconds


def fake_timer(clock: FakeClock) -> CpuTimer:
    """A timer on a fake clock (CPU and wall time are the same there)."""
    return CpuTimer("thread_cpu", clock.now, clock.now)


@dataclass
class FakeBench:
    """Passes that take ``cost(cell)`` microseconds, times exp(N(0, noise)) drawn from ``seed``.

    ``prepare_s`` is spent on every preparation; ``fails`` may raise for a cell.
    """

    cost: Cost
    clock: FakeClock
    noise: float = 0.0
    seed: int = 0
    prepare_s: float = 0.0
    fails: Callable[[Cell], None] = lambda cell: None
    prepared: list[Cell] = field(default_factory=list)
    flags: tuple[str, ...] = ()
    about: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def prepare(self, cell: Cell) -> Run:
        """A run that spends the cell's time."""
        self.fails(cell)
        self.prepared.append(cell)
        self.clock.spend(self.prepare_s)
        return self._run(cell)

    def prepare_round(self, cell: Cell) -> list[tuple[PassName, Run]]:
        """The passes of one round: a first draft pass, k - 1 further ones, verification, acceptance."""
        self.fails(cell)
        self.prepared.append(cell)
        self.clock.spend(self.prepare_s)
        drafts: list[PassName] = []
        if cell.drafter and cell.width > 1:
            drafts = ["draft_first", *(["draft_next"] * (cell.width - 2))]  # type: ignore[list-item]
        names: list[PassName] = [*drafts, "verify", "accept"]
        return [(name, self._run(pass_cell(cell, name))) for name in names]

    def _run(self, cell: Cell) -> Run:
        us = self.cost(cell)
        return lambda: self.clock.spend(
            1e-6 * us * (self._random.lognormvariate(0, self.noise) if self.noise else 1)
        )
