"""Laws of arrivals: order, counts, rates, burstiness, and common random numbers over rates."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import gamma, kstest

from sim.errors import InputError
from sim.workload.config import WorkloadConfig
from tests.workload.support import build, configure, dispersion, same

PROCESSES: list[dict[str, Any]] = [
    {"process": "poisson", "request_rate": "4/s"},
    {"process": "gamma", "request_rate": "4/s", "cv": 2.2},
    {"process": "constant", "request_rate": "4/s"},
    {"process": "phases", "phases": [{"duration": "60s", "request_rate": "4/s"}, {"duration": "30s", "ramp_to": "9/s"}]},
    {"process": "profile", "from": "azure-2023-conversation"},
]
by_process = pytest.mark.parametrize("arrival", PROCESSES, ids=lambda arrival: str(arrival["process"]))


@by_process
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**40), count=st.integers(1, 300), more=st.integers(0, 300))
def test_more_requests_begin_with_the_same_ones(arrival: dict[str, Any], seed: int, count: int, more: int) -> None:
    """A longer run repeats the shorter one and goes on; arrivals never go back."""
    short, long = build(arrival, seed, num_requests=count), build(arrival, seed, num_requests=count + more)
    assert len(short) == count
    assert np.array_equal(short.arrival_ns, long.arrival_ns[:count])
    assert np.all(np.diff(long.arrival_ns) >= 0)


@by_process
def test_a_duration_keeps_exactly_the_arrivals_before_it(arrival: dict[str, Any]) -> None:
    """Ending by time is ending by count at the first arrival that is too late."""
    timed = build(arrival, duration="100s")
    counted = build(arrival, num_requests=len(timed) + 1)
    assert np.array_equal(timed.arrival_ns, counted.arrival_ns[:-1])
    assert timed.arrival_ns[-1] < 100 * 10**9 <= counted.arrival_ns[-1]


@by_process
def test_both_ends_together_end_at_the_first(arrival: dict[str, Any]) -> None:
    """With num_requests and duration the earlier of the two ends the workload."""
    assert len(build(arrival, num_requests=7, duration="100s")) == 7
    assert same(build(arrival, num_requests=100_000, duration="100s"), build(arrival, duration="100s"))


@by_process
def test_another_rate_scales_the_same_arrivals(arrival: dict[str, Any]) -> None:
    """At twice a process's own mean rate each time is half, to the rounding of a nanosecond."""
    mean = {"phases": (60 * 4 + 30 * 6.5) / 90}.get(arrival["process"], 4.0)
    config = configure(arrival, num_requests=500)
    one, two = (requests_at(config, rate).arrival_ns for rate in (mean, 2 * mean))
    if "phases" in arrival or arrival["process"] == "profile":
        unit = [integrated(arrival, times, rate) for times, rate in ((one, mean), (two, 2 * mean))]
        assert np.allclose(unit[0], unit[1], rtol=1e-6)
    else:
        assert np.abs(one - 2 * two).max() <= 2


def requests_at(config: WorkloadConfig, rate: float) -> Any:
    """The requests of ``config`` at a mean of ``rate`` per second."""
    from sim.workload.build import build_requests
    from tests.workload.support import locate

    return build_requests(config.at_rate(rate), 1, locate)


def integrated(arrival: dict[str, Any], times_ns: Any, mean: float) -> Any:
    """Expected arrivals until each time, by a fine Riemann sum of the rate of the test's processes."""
    import json

    from tests.workload.support import locate

    t = np.arange(0, times_ns[-1] / 1e9 + 0.002, 0.001)
    if arrival["process"] == "phases":
        base = np.interp(t, [0, 60, 90], [4, 4, 9])
        rate = base * mean / ((60 * 4 + 30 * 6.5) / 90)
    else:
        profile = json.loads(locate(arrival["from"]).read_text())["rate"]
        per_s = np.array(profile["per_s"])
        rate = per_s[(t // profile["bin_s"]).astype(int) % len(per_s)] * mean / per_s.mean()
    return np.interp(times_ns / 1e9, t, np.concatenate([[0], np.cumsum(rate[:-1] * 0.001)]))
