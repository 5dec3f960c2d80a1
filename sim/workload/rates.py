"""A request rate that changes with time, integrated and inverted.

Non-homogeneous arrivals come from a unit-rate process by time change: the n-th arrival of a
process with rate r(t) is at the t where the integral of r reaches the n-th arrival of the
unit-rate process (Lewis and Shedler 1979, section 1; Cinlar 1975). No draw is thrown away, so
the same draws serve every rate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]


@dataclass(frozen=True)
class Segment:
    """One stretch of time with the rate going from ``start_per_s`` to ``end_per_s``.

    The rate moves on a straight line, or, when ``exponential``, by equal factors in equal times
    (both ends must then be positive).
    """

    duration_s: float
    start_per_s: float
    end_per_s: float
    exponential: bool = False

    @property
    def growth_per_s(self) -> float:
        """Exponent of an exponential segment; 0 for a straight one."""
        if not self.exponential or self.start_per_s == self.end_per_s:
            return 0.0
        return float(np.log(self.end_per_s / self.start_per_s)) / self.duration_s

    @property
    def count(self) -> float:
        """Expected arrivals in the segment."""
        if self.growth_per_s:
            return (self.end_per_s - self.start_per_s) / self.growth_per_s
        return self.duration_s * (self.start_per_s + self.end_per_s) / 2


class RateCurve:
    """Segments one after the other, then again from the start or at the last rate for ever."""

    def __init__(self, segments: Sequence[Segment], repeat: bool) -> None:
        self.repeat = repeat
        self.duration_s = sum(segment.duration_s for segment in segments)
        self._from_s = np.cumsum([0.0] + [segment.duration_s for segment in segments])
        self._from_count = np.cumsum([0.0] + [segment.count for segment in segments])
        self._start = np.array([segment.start_per_s for segment in segments])
        self._end = np.array([segment.end_per_s for segment in segments])
        self._growth = np.array([segment.growth_per_s for segment in segments])
        self._duration = np.diff(self._from_s)

    @property
    def count(self) -> float:
        """Expected arrivals in one pass over the segments."""
        return float(self._from_count[-1])

    @property
    def mean_per_s(self) -> float:
        """Mean rate over one pass."""
        return self.count / self.duration_s

    @property
    def peak_per_s(self) -> float:
        """Highest rate; a segment has it at one of its ends."""
        return float(max(self._start.max(), self._end.max()))

    def expected(self, time_s: float) -> float:
        """Mean number of arrivals before ``time_s``."""
        if self.repeat:
            passes, rest_s = divmod(time_s, self.duration_s)
            return passes * self.count + self._count_within(rest_s)
        beyond_s = max(0.0, time_s - self.duration_s)
        return self._count_within(min(time_s, self.duration_s)) + beyond_s * float(self._end[-1])

    def times_s(self, counts: Float64) -> Float64:
        """Time at which the integrated rate reaches each of ``counts`` (infinite: never)."""
        if self.repeat:
            passes, rest = np.divmod(counts, self.count)
            return passes * self.duration_s + self._time_within(rest)
        beyond = counts - self.count
        with np.errstate(divide="ignore", invalid="ignore"):
            later = self.duration_s + beyond / self._end[-1]
        return np.where(beyond > 0, later, self._time_within(np.minimum(counts, self.count)))

    def _count_within(self, time_s: float) -> float:
        i = min(int(np.searchsorted(self._from_s, time_s, side="right")) - 1, len(self._start) - 1)
        x_s, start, growth = time_s - self._from_s[i], self._start[i], self._growth[i]
        if growth:
            return float(self._from_count[i] + start * np.expm1(growth * x_s) / growth)
        slope = (self._end[i] - start) / self._duration[i]
        return float(self._from_count[i] + x_s * (start + slope * x_s / 2))

    def _time_within(self, counts: Float64) -> Float64:
        # side="right" steps over segments of rate 0, in which no count is reached.
        i = np.minimum(np.searchsorted(self._from_count, counts, side="right") - 1, len(self._start) - 1)
        y, start, growth = counts - self._from_count[i], self._start[i], self._growth[i]
        slope = (self._end[i] - start) / self._duration[i]
        with np.errstate(divide="ignore", invalid="ignore"):
            # The smaller root of start*x + slope*x^2/2 = y, in the form without cancellation.
            straight = 2 * y / (start + np.sqrt(np.maximum(start * start + 2 * slope * y, 0)))
            curved = np.log1p(growth * y / start) / growth
        x_s = np.where(growth != 0, curved, straight)
        return self._from_s[i] + np.where(np.isnan(x_s), 0.0, np.minimum(x_s, self._duration[i]))
