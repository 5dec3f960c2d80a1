"""Whether a run kept up with its arrivals: a growing backlog has no mean to report.

A run is judged on the whole stretch of its arrivals, before any warm-up is cut: a cut hides the
beginning of a growth, and with it the growth. A closed loop is never unstable.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sim.results.run_records import Int64, RunRecords
from sim.units import NS_PER_S

INTERVALS: Final = 20
MIN_REQUESTS: Final = 50
# Four conditions, each against one way to be wrong: chance (t), a busy but bounded system (growth
# over the mean), noise that is tiny beside the traffic (share: at least 2 %, and two standard
# deviations of Poisson arrivals), load that rises within capacity (slowdown; or, in a run of several
# lifetimes of a request, most of the late arrivals left behind: far over capacity the last requests of a
# short run are answered fast, once nobody comes any more).
# tests/results/test_stability.py measures the error rates that follow.
MIN_T: Final = 4.0
MIN_GROWTH_OVER_MEAN: Final = 1.0
MIN_GROWTH_SHARE: Final = 0.02
MIN_GROWTH_DEVIATIONS: Final = 2.0
MIN_SLOWDOWN: Final = 1.5
MIN_LATE_SHARE: Final = 0.5
MIN_LATE_DEVIATIONS: Final = 3.0
MIN_LIFETIMES: Final = 3.0
MAX_UNFINISHED_SHARE: Final = 0.05


@dataclass(frozen=True)
class Stability:
    """How the number of requests in the system moved while requests arrived.

    ``t`` is the slope of its interval means over the slope's standard error, ``growth`` the rise
    of the fitted line from end to end in requests, ``mean`` the mean number in the system,
    ``growth_share`` the growth per arriving request, ``slowdown`` the mean E2EL of the last third
    of the requests over that of the first, ``late_share`` the rise in the system over the second half
    of the arrivals, as a share of them, and ``lifetimes`` how many times the stretch of arrivals is as
    long as a request that nothing holds up: in a run of few the system is merely filling up.
    """

    t: float = 0.0
    growth: float = 0.0
    mean: float = 0.0
    growth_share: float = 0.0
    slowdown: float = 1.0
    late_share: float = 0.0
    lifetimes: float = 0.0
    growth_per_s: float = 0.0
    unfinished_share: float = 0.0
    closed_loop: bool = False
    requests: int = 1

    @property
    def backlog_grows(self) -> bool:
        """Whether the backlog grew, by all four conditions."""
        return (
            self.t > MIN_T
            and self.growth > MIN_GROWTH_OVER_MEAN * self.mean
            and self.growth_share > max(MIN_GROWTH_SHARE, MIN_GROWTH_DEVIATIONS / self.requests**0.5)
            and (self.slowdown > MIN_SLOWDOWN or self.left_behind)
        )

    @property
    def left_behind(self) -> bool:
        """Whether half of the second half of the arrivals, or more, stayed in the system."""
        chance = MIN_LATE_DEVIATIONS / (self.requests / 2) ** 0.5
        return bool(self.lifetimes > MIN_LIFETIMES and self.late_share > max(MIN_LATE_SHARE, chance))

    @property
    def unstable(self) -> bool:
        """Whether means of this run would depend on how long it ran."""
        if self.closed_loop:
            return False
        return self.backlog_grows or self.unfinished_share > MAX_UNFINISHED_SHARE

    @property
    def reason(self) -> str:
        """Why it is unstable, in words; empty if it is not."""
        if not self.unstable:
            return ""
        if self.backlog_grows:
            share = min(self.growth_share, 1.0)
            return f"backlog grew by {self.growth_per_s:.3g} requests/s, {share:.0%} of the arrivals"
        return f"{self.unfinished_share:.0%} of the requests never finished"


def judge_stability(records: RunRecords) -> Stability:
    """Judge one run; with fewer than ``MIN_REQUESTS`` rows only unfinished requests count."""
    share = records.unfinished_share
    arrival = records.requests["arrival_ns"]
    if records.closed_loop or len(arrival) < MIN_REQUESTS:
        return Stability(unfinished_share=share, closed_loop=records.closed_loop)
    order = np.argsort(arrival, kind="stable")
    finish, tokens = (records.requests[name][order] for name in ("finish_ns", "output_tokens"))
    return _judge_backlog(arrival[order], finish, tokens, share)


def _judge_backlog(arrival: Int64, finish: Int64, tokens: Int64, unfinished_share: float) -> Stability:
    """Fit a line to the interval means of the number in the system."""
    origin = arrival[0]
    edges = np.linspace(0.0, float(arrival[-1] - origin), INTERVALS + 1)
    if edges[-1] == 0.0:
        return Stability(unfinished_share=unfinished_share)
    in_system = _number_in_system(arrival - origin, np.sort(finish[finish >= 0]) - origin, edges)
    slope, error = _line(in_system)
    growth = slope * INTERVALS
    return Stability(
        t=slope / error if error > 0 else float(np.inf) * np.sign(slope) if slope else 0.0,
        growth=growth,
        mean=float(in_system.mean()),
        growth_share=growth / len(arrival),
        slowdown=_slowdown(arrival, finish),
        late_share=_late_share(arrival - origin, in_system),
        lifetimes=_lifetimes(arrival, finish, tokens),
        growth_per_s=growth / (edges[-1] / NS_PER_S),
        unfinished_share=unfinished_share,
        requests=len(arrival),
    )


def _number_in_system(arrival: Int64, departure: Int64, edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """Time average of arrivals less departures between each two edges."""
    area = _counted_time(arrival, edges) - _counted_time(departure, edges)
    mean: NDArray[np.float64] = np.diff(area) / np.diff(edges)
    return mean


def _counted_time(events: Int64, until: NDArray[np.float64]) -> NDArray[np.float64]:
    """Integral from 0 to each instant of the number of sorted ``events`` so far."""
    sums = np.concatenate(([0.0], np.cumsum(events.astype(np.float64))))
    seen = np.searchsorted(events, until, side="right")
    integral: NDArray[np.float64] = seen * until - sums[seen]
    return integral


def _line(values: NDArray[np.float64]) -> tuple[float, float]:
    """Least-squares slope per interval, and its standard error."""
    x = np.arange(len(values)) - (len(values) - 1) / 2
    slope = float(x @ values / (x @ x))
    residual = values - values.mean() - slope * x
    error = np.sqrt(residual @ residual / (len(values) - 2) / (x @ x))
    return slope, float(error)


def _late_share(arrival: Int64, in_system: NDArray[np.float64]) -> float:
    """From the two middle intervals to the two last ones, per request that arrived between their centres."""
    middle = INTERVALS // 2
    rise = in_system[-2:].mean() - in_system[middle - 1 : middle + 1].mean()
    last = arrival[-1] * (1 - 1 / INTERVALS)
    arrived = np.count_nonzero((arrival > arrival[-1] / 2) & (arrival <= last))
    return float(rise / arrived) if arrived else 0.0


def _lifetimes(arrival: Int64, finish: Int64, tokens: Int64) -> float:
    """Stretch of arrivals over the E2EL of a mean request at the pace of the fastest one."""
    done = finish >= 0
    pace = (finish - arrival)[done] / np.maximum(tokens[done], 1)
    lone = float(pace.min()) * float(tokens.mean()) if len(pace) else 0.0
    return float(arrival[-1] - arrival[0]) / lone if lone > 0 else 0.0


def _slowdown(arrival: Int64, finish: Int64) -> float:
    """Mean E2EL of the last third of the finished requests over that of the first third."""
    latency = (finish - arrival)[finish >= 0].astype(np.float64)
    third = len(latency) // 3
    first = latency[:third].mean() if third else 0.0
    return float(latency[-third:].mean() / first) if first > 0 else 1.0
