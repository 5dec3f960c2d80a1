"""Passes timed on a CPU: by the thread's CPU time or by the wall clock, both recorded.

Thread CPU time is hardly disturbed by other load, but sees only the calling thread: it is the
clock for one thread, the wall clock is the one for several.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Literal

from calibrate.cells import Execution, PassName
from calibrate.timing.peers import ALONE, Peers
from calibrate.timing.samples import Limits, Samples
from calibrate.timing.timer import Reading, Run, capped, collect, column, runs_per_window, warm_up

Clock = Callable[[], float]
CpuClock = Literal["thread_cpu", "wall"]
OTHER: dict[CpuClock, CpuClock] = {"thread_cpu": "wall", "wall": "thread_cpu"}


class CpuTimer:
    """A ``Timer`` on two clocks, of which ``clock`` gives the samples.

    ``wall`` and ``cpu`` return seconds; a fake pair makes a fake timer.
    """

    execution: Execution = "cpu"

    def __init__(
        self,
        clock: CpuClock = "thread_cpu",
        wall: Clock = time.perf_counter,
        cpu: Clock = time.thread_time,
        peers: Peers = ALONE,
    ) -> None:
        self.clock: str = clock
        self._name: CpuClock = clock
        self._clocks: dict[CpuClock, Clock] = {"thread_cpu": cpu, "wall": wall}
        self._now, self._peers = wall, peers
        self._warm = False

    def measure(self, run: Run, limits: Limits) -> Samples:
        """Time one pass, run back to back."""
        count = runs_per_window(self._ready(run, limits), limits)

        def window() -> Reading:
            start = self._read()
            for _ in range(count):
                run()
            return {name: 1e6 * (end - start[name]) / count for name, end in self._read().items()}

        readings, hit = collect(window, self._name, limits, self._now, self._peers)
        return self._samples(readings, self._name, OTHER[self._name], hit)

    def measure_round(
        self, passes: Sequence[tuple[PassName, Run]], limits: Limits
    ) -> dict[PassName, Samples]:
        """Time the passes of one round in their order, each and the whole."""
        count = runs_per_window(self._ready(lambda: _run_all(passes), limits), limits)
        occurrences = Counter(name for name, _ in passes)

        def window() -> Reading:
            return self._rounds(passes, count, occurrences)

        watched = f"{self._name}:round"
        readings, hit = collect(window, watched, limits, self._now, self._peers)
        names: list[PassName] = [*occurrences, "round", "host"]
        other = OTHER[self._name]
        return {
            name: self._samples(readings, f"{self._name}:{name}", f"{other}:{name}", hit) for name in names
        }

    def _rounds(
        self, passes: Sequence[tuple[PassName, Run]], count: int, occurrences: Counter[PassName]
    ) -> Reading:
        """Microseconds of each pass, the whole and the rest, on both clocks, over ``count`` rounds."""
        spent: dict[str, float] = defaultdict(float)
        began = mark = self._read()
        for _ in range(count):
            for name, run in passes:
                run()
                at = self._read()
                for clock, seconds in at.items():
                    spent[f"{clock}:{name}"] += seconds - mark[clock]
                mark = at
        ended = self._read()
        whole = {clock: ended[clock] - began[clock] for clock in ended}
        reading = {
            f"{c}:{n}": 1e6 * spent[f"{c}:{n}"] / (count * times)
            for n, times in occurrences.items()
            for c in whole
        }
        for clock, seconds in whole.items():
            passes_s = sum(spent[f"{clock}:{name}"] for name in occurrences)
            reading[f"{clock}:round"] = 1e6 * seconds / count
            reading[f"{clock}:host"] = 1e6 * (seconds - passes_s) / count
        return reading

    def _read(self) -> dict[CpuClock, float]:
        return {name: clock() for name, clock in self._clocks.items()}

    def _ready(self, run: Run, limits: Limits) -> float:
        seconds = limits.settle_s if self._warm else max(limits.warmup_s, limits.settle_s)
        self._warm = True
        return warm_up(run, _nothing, seconds, self._now, self._peers)

    def _samples(self, readings: Sequence[Reading], us: str, other: str, hit: bool) -> Samples:
        return Samples(us=column(readings, us), other_us=column(readings, other), flags=capped(hit))


def _nothing() -> None:
    pass


def _run_all(passes: Sequence[tuple[PassName, Run]]) -> None:
    for _, run in passes:
        run()
