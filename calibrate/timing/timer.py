"""The timer contract, and the loops that every timer shares: warming up and filling windows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import ceil
from typing import Protocol

from calibrate.cells import Execution, PassName
from calibrate.timing.peers import ALONE, Peers, led
from calibrate.timing.samples import Limits, Samples, settled

Run = Callable[[], None]
Reading = Mapping[str, float]
"""One window: microseconds per run under the names of the passes (and of the clocks)."""

SHORTEST_US = 1e-3
"""No sample is below one nanosecond: host time is a difference, and noise can make it negative."""


class Timer(Protocol):
    """Times passes on one clock.

    ``execution`` is the regime that it launches passes in; ``clock`` names what ``Samples.us``
    are read from (``cuda_event``, ``thread_cpu``, ``wall``). A timer never changes a setting of
    the device.
    """

    execution: Execution
    clock: str

    def measure(self, run: Run, limits: Limits) -> Samples:
        """Time one pass, run back to back."""
        ...

    def measure_round(
        self, passes: Sequence[tuple[PassName, Run]], limits: Limits
    ) -> dict[PassName, Samples]:
        """Time the passes of one round in their order, each and the whole.

        A pass that occurs several times has its mean per occurrence. ``round`` is the whole on the
        wall clock (``CpuTimer``: on its own clock, so with one thread the CPU time of the thread),
        ``host`` what the whole takes beyond its passes.
        """
        ...


def warm_up(run: Run, wait: Run, seconds: float, now: Callable[[], float], peers: Peers = ALONE) -> float:
    """Run for at least ``seconds``, in batches that double; returns seconds per run in the last one.

    ``wait`` returns when everything launched has finished. One run at least is made. All ranks go
    by the first one's clock, and return the same.
    """
    began, batch = now(), 1
    while True:
        start = now()
        for _ in range(batch):
            run()
        wait()
        end = now()
        took, done = led(peers, (end - start, end - began >= seconds))
        if done:
            return took / batch
        batch *= 2 if took < seconds / 4 else 1


def runs_per_window(each_s: float, limits: Limits) -> int:
    """How many runs of ``each_s`` seconds fill a window."""
    return max(1, ceil(limits.window_s / max(each_s, 1e-9)))


def collect(
    window: Callable[[], Reading],
    watched: str,
    limits: Limits,
    now: Callable[[], float],
    peers: Peers = ALONE,
) -> tuple[list[Reading], bool]:
    """Take windows until the ``watched`` reading has settled; also whether the cap ended it before.

    All ranks take as many as the first one needs.
    """
    began = now()
    readings: list[Reading] = []
    while True:
        quiet = settled([reading[watched] for reading in readings], limits)
        hit = not quiet and len(readings) >= limits.fewest and now() - began >= limits.cap_s
        quiet, hit = led(peers, (quiet, hit))
        if quiet or hit:
            return readings, hit
        readings.append(window())


def column(readings: Sequence[Reading], name: str) -> tuple[float, ...]:
    """One name's microseconds over all windows, in seven digits."""
    return tuple(max(float(f"{reading[name]:.7g}"), SHORTEST_US) for reading in readings)


def capped(hit: bool) -> tuple[str, ...]:
    """The flags of a cell that the cap ended."""
    return ("capped",) if hit else ()
