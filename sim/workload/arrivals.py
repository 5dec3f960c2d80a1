"""Intended arrival times, from one stream of draws whatever the rate.

The n-th draw makes the n-th gap of a process with mean gap 1; the rate, constant or not, only
maps that unit time to seconds. So a longer run begins with the shorter one, and the same seed
at another rate gives the same requests, closer together or farther apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincinv

from sim.errors import InputError
from sim.streams import uniforms
from sim.units import NS_PER_S
from sim.workload.arrival_config import (
    ClosedArrival,
    ConstantArrival,
    GammaArrival,
    PhasesArrival,
    PoissonArrival,
    ProfileArrival,
)
from sim.workload.grids import load_workload_file
from sim.workload.rates import RateCurve, Segment

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]
Locate = Callable[[str], Path]
"""Turns what the YAML says (a shipped name or a path) into the path of a file."""

DrawnArrival = PoissonArrival | GammaArrival | ConstantArrival | PhasesArrival | ProfileArrival
MOST_REQUESTS = 100_000_000
_LATEST_S = 9e9  # below the largest int64 of nanoseconds


def arrival_times_ns(
    arrival: DrawnArrival | ClosedArrival, seed: int, locate: Locate, count: int | None, end_ns: int | None
) -> Int64:
    """Arrivals: the first ``count``, or those before ``end_ns``, or both bounds together."""
    if isinstance(arrival, ClosedArrival):
        return np.zeros(count or 0, dtype=np.int64)
    curve = rate_curve(arrival, locate)
    if count is not None:
        times_ns = _times_ns(arrival, curve, seed, count)
        return times_ns if end_ns is None else times_ns[times_ns < end_ns]
    if end_ns is None:
        raise InputError("the workload has no end; give num_requests or duration")
    return _times_before(arrival, curve, seed, end_ns)


def _times_before(arrival: DrawnArrival, curve: RateCurve, seed: int, end_ns: int) -> Int64:
    expected = curve.expected(end_ns / NS_PER_S)
    if expected > MOST_REQUESTS:
        raise InputError(f"the workload has about {expected:.3g} requests; the most is {MOST_REQUESTS:.0e}")
    count = math.ceil(1.1 * expected) + 64
    while True:
        times_ns = _times_ns(arrival, curve, seed, count)
        if times_ns[-1] >= end_ns:
            return times_ns[times_ns < end_ns]
        count *= 2


def _times_ns(arrival: DrawnArrival, curve: RateCurve, seed: int, count: int) -> Int64:
    unit = unit_times(arrival, seed, count)
    if isinstance(arrival, PoissonArrival | GammaArrival) and arrival.normalise:
        unit = unit * (count / unit[-1])
    times_s: Float64 = np.minimum(curve.times_s(unit), _LATEST_S)
    return np.rint(times_s * NS_PER_S).astype(np.int64)


def unit_times(arrival: DrawnArrival, seed: int, count: int) -> Float64:
    """Arrival times of the process at one request per unit of time."""
    if isinstance(arrival, ConstantArrival):
        return np.arange(count, dtype=np.float64)
    gaps = _unit_gaps(arrival.shape, uniforms(seed, "arrivals", 0, count))
    return np.cumsum(gaps, dtype=np.float64)


def _unit_gaps(shape: float, u: Float64) -> Float64:
    """Gamma gaps of mean 1 by inversion; the exponential has a closed form."""
    return np.asarray(-np.log1p(-u) if shape == 1.0 else gammaincinv(shape, u) / shape, dtype=np.float64)


def rate_curve(arrival: DrawnArrival, locate: Locate) -> RateCurve:
    """Rate over time, scaled as the configuration says."""
    if isinstance(arrival, PhasesArrival):
        return _scaled(arrival, _phase_segments(arrival), arrival.repeat)
    if isinstance(arrival, ProfileArrival):
        return _scaled(arrival, _profile_segments(arrival, locate), repeat=True)
    return RateCurve([Segment(1.0, arrival.request_rate, arrival.request_rate)], repeat=False)


def _phase_segments(arrival: PhasesArrival) -> list[Segment]:
    return [
        Segment(phase.duration / NS_PER_S, start, end, exponential=phase.ramp == "exponential")
        for phase, (start, end) in zip(arrival.phases, arrival.ends(), strict=True)
    ]


def _profile_segments(arrival: ProfileArrival, locate: Locate) -> list[Segment]:
    path = locate(arrival.source)
    rate = load_workload_file(path).rate
    if rate is None:
        raise InputError(f"{path}: has no rate; a profile needs rate: {{bin_s, per_s}}")
    return [Segment(rate.bin_s * arrival.time_scale, per_s, per_s) for per_s in rate.per_s]


def _scaled(arrival: PhasesArrival | ProfileArrival, segments: list[Segment], repeat: bool) -> RateCurve:
    factor = arrival.scale(RateCurve(segments, repeat).mean_per_s)
    scaled = [
        Segment(s.duration_s, s.start_per_s * factor, s.end_per_s * factor, s.exponential) for s in segments
    ]
    return RateCurve(scaled, repeat)
