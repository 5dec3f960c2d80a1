"""Samples of one pass, the 95 % interval of their median, and when to stop taking more.

The interval is the order-statistic one: it assumes nothing about how times are distributed, only
that windows are alike. Looking after every window makes the true coverage of the last interval a
little lower than 95 %; the campaign therefore measures every cell in two separate passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import comb
from statistics import median

FEWEST = 6
"""Below six samples no order statistics enclose the median with 95 %: 1 - 2 / 2**5 < 0.95."""


@dataclass(frozen=True)
class Limits:
    """How long to measure one cell, in seconds.

    ``warmup_s`` is spent once, before the first cell (clocks ramp up, caches and allocators fill);
    ``settle_s`` before every cell. A window holds as many runs as fill ``window_s``. Windows are
    taken until the interval of the median is narrower than ``relative`` times the median, or,
    once there are ``fewest`` of them, until ``cap_s`` has passed.
    """

    warmup_s: float = 1.0
    settle_s: float = 0.02
    window_s: float = 0.002
    relative: float = 0.01
    cap_s: float = 0.4
    fewest: int = FEWEST


@dataclass(frozen=True)
class Samples:
    """Microseconds per pass, one per window, in order of measurement.

    ``other_us`` are the same windows on the second clock: wall time where ``us`` is CPU or device
    time, CPU time where ``us`` is wall time. ``flags`` are those of ``calibrate.cells.Measured``.
    """

    us: tuple[float, ...]
    other_us: tuple[float, ...] = ()
    clock_mhz: tuple[float, float] | None = None
    flags: tuple[str, ...] = ()

    @property
    def median_us(self) -> float:
        """The median of ``us``."""
        return median(self.us)

    @property
    def ci_us(self) -> tuple[float, float]:
        """The 95 % interval of the median; the whole range below six samples."""
        return median_interval(self.us)


@cache
def interval_rank(n: int) -> int:
    """The largest rank r with P(r-th smallest .. r-th largest of n encloses the median) >= 95 %; 0 if none.

    The number of samples below the median is binomial(n, 1/2) (David & Nagaraja, Order Statistics, 7.1).
    """
    rank, below = 0, 0
    while rank < n // 2 and (below := below + comb(n, rank)) * 40 <= 2**n:
        rank += 1
    return rank


def median_interval(samples: Sequence[float]) -> tuple[float, float]:
    """The order-statistic 95 % interval of the median of ``samples`` (at least one)."""
    ordered = sorted(samples)
    rank = max(interval_rank(len(ordered)), 1)
    return ordered[rank - 1], ordered[-rank]


def settled(samples: Sequence[float], limits: Limits) -> bool:
    """Whether the interval of the median is narrower than the limit, from enough samples to have one."""
    if len(samples) < max(limits.fewest, FEWEST):
        return False
    low, high = median_interval(samples)
    return high - low < limits.relative * median(samples)
