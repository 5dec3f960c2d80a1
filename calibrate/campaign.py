"""A calibration campaign: every cell of a grid, shuffled, between anchors, within a budget.

Nothing that finished is lost: every cell is in the journal before the next one starts, Ctrl-C and
the end of the budget end the campaign like any other, and a cell that does not fit into memory is
skipped with its reason.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

from calibrate.cells import Cell, Execution, Measured, PassName
from calibrate.grid import Grid, between, pass_cell
from calibrate.journal import Finished, Journal, Key, Slot
from calibrate.passes.contract import Bench, OutOfMemory, Unsupported
from calibrate.timing.cuda_timer import CaptureError
from calibrate.timing.drift import drift
from calibrate.timing.peers import ALONE, PeerLost, Peers, led, together
from calibrate.timing.samples import Limits, Samples
from calibrate.timing.timer import Timer

Predictor = Callable[[Cell], float | None]
"""Microseconds that a fit expects of a pass; None where it has nothing to say."""

Refit = Callable[[Sequence[Measured]], Predictor]
MISS = 0.05
"""Cells that the fit misses by more are measured again, with new cells on both sides."""

ANCHOR_WINDOWS = 24
"""The fewest windows of an anchor."""

FAILURES = (OutOfMemory, Unsupported, CaptureError, MemoryError)
"""What skips one cell and leaves the bench usable."""

WATCHED: tuple[PassName, ...] = ("verify", "prefill", "mixed")
"""The passes whose misses call for more cells: the target's, which decide a step's time."""


@dataclass(frozen=True)
class Step:
    """Progress, for whoever watches: the cell that comes next, and what is done of what is planned."""

    done: int
    planned: int
    text: str


@dataclass(frozen=True)
class Outcome:
    """What a campaign brought home; ``stopped`` says why it ended."""

    finished: tuple[Finished, ...]
    stopped: Literal["finished", "budget", "interrupted"]

    @property
    def measured(self) -> list[Measured]:
        """All samples, in the order they were taken."""
        return [measured for each in self.finished for measured in each.measured]

    @property
    def skipped(self) -> list[Finished]:
        """The cells that could not be measured."""
        return [each for each in self.finished if each.skipped]

    @property
    def drift(self) -> float:
        """How far the anchors moved, as a share."""
        occasions: dict[str, list[tuple[str, float]]] = {}
        for each in self.finished:
            if each.slot not in ("grid", "adaptive"):
                whole = [m for m in each.measured if m.cell.pass_ == "round"]
                at = occasions.setdefault(f"{each.slot}/{each.number}", [])
                at += [(each.cell.model_dump_json(), m.median_us) for m in whole]
        return drift(occasions)


class _BudgetSpentError(Exception):
    """Raised where the next cell would end after the budget."""


@dataclass
class Campaign:
    """One run over a grid.

    ``timers`` has one timer per regime of the grid. ``deadline`` is on the clock ``now``; the last
    anchors are measured within it. ``passes`` is how often the grid is gone through, each time in
    another order drawn from ``seed``. Other ranks measure every cell, too (``follow``).
    """

    bench: Bench
    timers: Mapping[Execution, Timer]
    grid: Grid
    journal: Journal
    limits: Limits = field(default_factory=Limits)
    deadline: float = float("inf")
    seed: int = 0
    passes: int = 2
    now: Callable[[], float] = time.monotonic
    watch: Callable[[Step], None] = lambda step: None
    peers: Peers = ALONE

    def __post_init__(self) -> None:
        self._known: dict[Key, Finished] = {each.key: each for each in self.journal.finished}
        self._took: dict[Cell, float] = {}
        self._reserve = 0.0
        self._resumptions = sum(each.slot == "resumed" for each in self.journal.finished)

    def run(self, refit: Refit | None = None) -> Outcome:
        """Measure what is left of the plan; with ``refit``, then what its fit misses."""
        stopped: Literal["finished", "budget", "interrupted"] = "finished"
        try:
            self._measure_grid()
            self._refine(refit)
        except _BudgetSpentError:
            stopped = "budget"
        except KeyboardInterrupt:
            return Outcome(tuple(self.journal.finished), "interrupted")
        try:
            self._anchors("last", sum(each.slot == "resumed" for each in self.journal.finished))
        except KeyboardInterrupt:
            stopped = "interrupted"
        else:
            self.peers.share(None)
        return Outcome(tuple(self.journal.finished), stopped)

    def order(self) -> Iterator[tuple[int, Cell]]:
        """The grid in the order it is measured: all of it, then all of it again in another order."""
        for number in range(self.passes):
            cells = list(self.grid.cells)
            random.Random(f"{self.seed}/{number}").shuffle(cells)
            yield from ((number, cell) for cell in cells)

    def _measure_grid(self) -> None:
        order = list(self.order())
        self._opening_anchors(order)
        for place, (number, cell) in enumerate(order):
            if place == len(order) // 2:
                self._anchors("middle")
            self._do("grid", number, cell)

    def _opening_anchors(self, order: Sequence[tuple[int, Cell]]) -> None:
        """The first anchors; after a break also new ones, as the machine may have changed in between."""
        began = self.now()
        left = any(("grid", number, cell) not in self._known for number, cell in order)
        if self.journal.resumed and left:
            self._anchors("resumed", self._resumptions)
        self._anchors("first")
        self._reserve = 1.5 * (self.now() - began)

    def _anchors(self, slot: Slot, number: int = 0) -> None:
        for cell in self.grid.anchors:
            self._do(slot, number, cell)

    def _refine(self, refit: Refit | None) -> None:
        """Measure again where the fit misses, and halfway to the neighbours on both sides."""
        if refit is None:
            return
        missed = self._missed(refit(Outcome(tuple(self.journal.finished), "finished").measured))
        for cell in missed:
            self._do("adaptive", 0, cell)
        for cell in dict.fromkeys(new for miss in missed for new in between(miss, self.grid.cells)):
            self._do("adaptive", 0, cell)

    def _missed(self, predict: Predictor) -> list[Cell]:
        """Grid cells of which a target pass is missed, the worst first."""
        worst: dict[Cell, float] = {}
        for each in self.journal.finished:
            misses = [_miss(m, predict) for m in each.measured if m.cell.pass_ in WATCHED]
            if each.slot == "grid" and misses:
                worst[each.cell] = max(worst.get(each.cell, 0.0), *misses)
        return sorted((c for c, miss in worst.items() if miss > MISS), key=lambda c: -worst[c])

    def _do(self, slot: Slot, number: int, cell: Cell) -> None:
        """Measure one cell, unless the journal has it; raises ``_BudgetSpentError``."""
        if (slot, number, cell) in self._known:
            return
        began = self.now()
        if slot not in ("first", "last") and began + self._needed(cell) > self.deadline:
            raise _BudgetSpentError
        self.watch(Step(len(self._known), self._planned, describe(cell)))
        finished = self._finish(slot, number, cell)
        self.journal.add(finished)
        self._known[finished.key] = finished
        if slot in ("grid", "adaptive"):
            self._took[cell] = self.now() - began

    def _needed(self, cell: Cell) -> float:
        """Seconds to keep for this cell (as long as before, or as the longest) and for the last anchors."""
        return self._reserve + self._took.get(cell, max(self._took.values(), default=0.0))

    @property
    def _planned(self) -> int:
        return self.passes * len(self.grid.cells) + 3 * len(self.grid.anchors)

    def _finish(self, slot: Slot, number: int, cell: Cell) -> Finished:
        flags = self.bench.flags + (() if slot in ("grid", "adaptive") else ("anchor",))
        try:
            samples = self._time(cell, self._limits(slot))
        except FAILURES as error:
            reason = str(error) or "out of memory"
            self.watch(Step(len(self._known), self._planned, f"skipped {describe(cell)}: {reason}"))
            return Finished(slot=slot, number=number, cell=cell, skipped=reason)
        measured = tuple(_measured(pass_, each, number, flags) for pass_, each in samples.items())
        other = {pass_.pass_: each.other_us for pass_, each in samples.items() if each.other_us}
        return Finished(slot=slot, number=number, cell=cell, measured=measured, other_us=other)

    def _limits(self, slot: Slot) -> Limits:
        """Anchors take longer: a passing disturbance must not look like drift."""
        if slot in ("grid", "adaptive"):
            return self.limits
        return replace(self.limits, fewest=ANCHOR_WINDOWS)

    def _time(self, cell: Cell, limits: Limits) -> dict[Cell, Samples]:
        self.peers.share((cell, limits))
        return time_cell(self.bench, self.timers[cell.execution], self.peers, cell, limits)


def time_cell(bench: Bench, timer: Timer, peers: Peers, cell: Cell, limits: Limits) -> dict[Cell, Samples]:
    """The samples of every pass of a cell; fails on all ranks where one cannot prepare it."""
    if cell.pass_ != "round":
        return {cell: timer.measure(together(peers, partial(bench.prepare, cell)), limits)}
    passes = timer.measure_round(together(peers, partial(bench.prepare_round, cell)), limits)
    return {pass_cell(cell, name): samples for name, samples in passes.items()}


def follow(bench: Bench, timers: Mapping[Execution, Timer], peers: Peers) -> None:
    """Another rank's part of a campaign: every cell that the first one takes up, and nothing kept.

    Raises ``PeerLost`` when the first rank ended before it said so.
    """
    work: tuple[Cell, Limits] | None
    try:
        while (work := led(peers, None)) is not None:
            with suppress(*FAILURES):
                time_cell(bench, timers[work[0].execution], peers, *work)
    except RuntimeError as error:
        raise PeerLost(f"rank {peers.rank} stopped: {str(error).splitlines()[0]}") from error


def describe(cell: Cell) -> str:
    """A cell in a few words."""
    rows = f"{cell.sequences} x {cell.width} at {cell.context}" if cell.sequences else ""
    chunk = f"chunk {cell.chunk} after {cell.prefix}" if cell.chunk else ""
    eager = "eager" if cell.execution == "eager" else ""
    return " ".join(part for part in (cell.pass_, rows, chunk, cell.drafter, eager) if part)


def _measured(cell: Cell, samples: Samples, number: int, flags: tuple[str, ...]) -> Measured:
    return Measured(
        cell=cell,
        samples_us=samples.us,
        median_us=samples.median_us,
        ci_us=samples.ci_us,
        clock_mhz=samples.clock_mhz,
        round=number,
        flags=(*samples.flags, *flags),
    )


def _miss(measured: Measured, predict: Predictor) -> float:
    expected = predict(measured.cell)
    return 0.0 if expected is None else abs(expected / measured.median_us - 1)
