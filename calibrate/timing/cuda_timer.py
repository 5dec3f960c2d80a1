"""Passes timed by CUDA events, around graph replays or around eager launches.

Everything CUDA is behind the small ``CudaApi``: the real one is ``calibrate.timing.cuda``, a fake
one with a stream, events and graphs runs every branch of this file without a GPU.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol, Self

from calibrate.cells import Execution, PassName
from calibrate.timing.peers import ALONE, Peers, together
from calibrate.timing.samples import Limits, Samples
from calibrate.timing.timer import Reading, Run, capped, collect, column, runs_per_window, warm_up

USUAL = ("sw_power_cap",)
"""A busy device meets its power limit in service, too; other reasons mean that something is wrong."""

HOLD_S = 5e-5
"""Between a launch on the host and its start on the device, with room to spare."""


class Event(Protocol):
    """A mark in the stream."""

    def record(self) -> None:
        """Put the mark behind everything launched so far."""
        ...

    def elapsed_ms(self, later: Self) -> float:
        """Device milliseconds from this mark to a later one, both reached."""
        ...


@dataclass(frozen=True)
class Clocks:
    """The SM clock in MHz and what holds it down just now (names of NVML's reasons)."""

    sm_mhz: float
    reasons: tuple[str, ...] = ()


class CaptureError(RuntimeError):
    """A pass that cannot be captured in a graph, and why."""


class CudaApi(Protocol):
    """What timing needs of CUDA; one device, one stream."""

    def event(self) -> Event:
        """A new event that can be timed."""
        ...

    def capture(self, run: Run) -> Run:
        """A graph of the launches of ``run``, as a function that replays it.

        Raises ``CaptureError``, or ``MemoryError`` where the graph does not fit.
        """
        ...

    def hold(self, seconds: float) -> None:
        """Launch something that keeps the device busy for at least ``seconds``; returns at once."""
        ...

    def synchronize(self) -> None:
        """Return when everything launched has finished."""
        ...

    def clocks(self) -> Clocks | None:
        """The clocks now; None where they cannot be read."""
        ...

    def now(self) -> float:
        """Seconds on the host's wall clock."""
        ...


class CudaTimer:
    """A ``Timer`` over a ``CudaApi``, in one of the two regimes an engine launches passes in."""

    clock = "cuda_event"

    def __init__(self, api: CudaApi, execution: Execution = "cuda_graph", peers: Peers = ALONE) -> None:
        self.execution: Execution = execution
        self._api, self._peers = api, peers
        self._warm = False

    def measure(self, run: Run, limits: Limits) -> Samples:
        """Time one pass, launched back to back.

        One run leads in before the first event, so that the device is busy while the host gets
        ahead: graph replays then show device time alone, eager launches the slower of both.
        """
        api, body = self._api, self._launcher(run)
        count = runs_per_window(self._ready(body, limits), limits)
        start, end = api.event(), api.event()

        def window() -> Reading:
            began = api.now()
            body()
            start.record()
            for _ in range(count):
                body()
            end.record()
            api.synchronize()
            wall = 1e6 * (api.now() - began) / (count + 1)
            return {"device": 1e3 * start.elapsed_ms(end) / count, "wall": wall}

        before = api.clocks()
        readings, hit = collect(window, "device", limits, api.now, self._peers)
        return _samples(readings, "device", "wall", (before, api.clocks()), hit)

    def measure_round(
        self, passes: Sequence[tuple[PassName, Run]], limits: Limits
    ) -> dict[PassName, Samples]:
        """Time the passes of one round in their order by events, and the whole by the wall clock.

        Every round ends with a wait for the device, as an engine waits for the accepted tokens, so the
        next begins on an idle one: the launch of its first graph is part of ``host``, whichever pass
        is the first. Passes replayed as graphs are therefore timed in a second round, which begins
        while the device is kept busy for longer than that launch.
        """
        bodies = [(name, self._launcher(run)) for name, run in passes]
        count = runs_per_window(self._ready(lambda: self._round(bodies), limits), limits)
        marks = [self._api.event() for _ in range(len(bodies) + 1)]

        def window() -> Reading:
            return self._rounds(bodies, marks, count)

        before = self._api.clocks()
        readings, hit = collect(window, "round", limits, self._api.now, self._peers)
        clocks = before, self._api.clocks()
        names: list[PassName] = [*dict.fromkeys(name for name, _ in bodies), "round", "host"]
        return {name: _samples(readings, name, None, clocks, hit) for name in names}

    def _rounds(self, bodies: Sequence[tuple[PassName, Run]], marks: Sequence[Event], count: int) -> Reading:
        """Microseconds of each pass, the whole and the rest, over ``count`` rounds."""
        spent: dict[str, float] = defaultdict(float)
        for _ in range(count):
            launch_s, round_s = self._timed_round(bodies, marks)
            if self.execution == "cuda_graph":
                self._api.hold(HOLD_S + 2 * launch_s)
                self._timed_round(bodies, marks)
            spent["round"] += 1e6 * round_s
            for (name, _), (start, end) in zip(bodies, pairwise(marks), strict=True):
                spent[name] += 1e3 * start.elapsed_ms(end)
        passes = sum(us for name, us in spent.items() if name != "round")
        spent["host"] = spent["round"] - passes
        occurrences = Counter(name for name, _ in bodies)
        return {name: us / (count * occurrences.get(name, 1)) for name, us in spent.items()}  # type: ignore[call-overload]

    def _timed_round(
        self, bodies: Sequence[tuple[PassName, Run]], marks: Sequence[Event]
    ) -> tuple[float, float]:
        """One round with a mark after every pass; wall seconds of its first launch and of the whole."""
        began = launched = self._api.now()
        marks[0].record()
        for (_, body), mark in zip(bodies, marks[1:], strict=True):
            body()
            if mark is marks[1]:
                launched = self._api.now()
            mark.record()
        self._api.synchronize()
        return launched - began, self._api.now() - began

    def _round(self, bodies: Sequence[tuple[PassName, Run]]) -> None:
        for _, body in bodies:
            body()
        self._api.synchronize()

    def _launcher(self, run: Run) -> Run:
        if self.execution != "cuda_graph":
            return run
        return together(self._peers, lambda: self._api.capture(run))

    def _ready(self, body: Run, limits: Limits) -> float:
        seconds = limits.settle_s if self._warm else max(limits.warmup_s, limits.settle_s)
        self._warm = True
        return warm_up(body, self._api.synchronize, seconds, self._api.now, self._peers)


def _samples(
    readings: Sequence[Reading],
    us: str,
    other: str | None,
    clocks: tuple[Clocks | None, Clocks | None],
    hit: bool,
) -> Samples:
    known = [each for each in clocks if each is not None]
    reasons = sorted({reason for each in known for reason in each.reasons})
    return Samples(
        us=column(readings, us),
        other_us=column(readings, other) if other else (),
        clock_mhz=(known[0].sm_mhz, known[-1].sm_mhz) if known else None,
        flags=(*capped(hit), *_flags(reasons)),
    )


def _flags(reasons: Sequence[str]) -> tuple[str, ...]:
    """The reasons, after ``throttled`` where one of them is not met in ordinary service."""
    wrong = any(reason not in USUAL for reason in reasons)
    return (*(("throttled",) if wrong else ()), *reasons)


def cuda_timers(api: CudaApi, peers: Peers = ALONE) -> dict[Execution, CudaTimer]:
    """One timer per regime: graph replays and eager launches."""
    return {"cuda_graph": CudaTimer(api, "cuda_graph", peers), "eager": CudaTimer(api, "eager", peers)}
