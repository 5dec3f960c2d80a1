"""Laws of changing rates: the integral, its inverse, and the counts they promise."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad

from sim.workload.rates import RateCurve, Segment
from tests.workload.support import build

rates = st.one_of(st.just(0.0), st.floats(0.01, 100))
straight = st.builds(Segment, st.floats(0.1, 100), rates, rates)
curved = st.builds(Segment, st.floats(0.1, 100), st.floats(0.01, 100), st.floats(0.01, 100), st.just(True))
curves = st.builds(RateCurve, st.lists(straight | curved, min_size=1, max_size=6), st.booleans()).filter(
    lambda curve: curve.count > 0
)


@given(curve=curves, part=st.lists(st.floats(0, 3), min_size=1, max_size=20))
def test_the_inverse_undoes_the_integral(curve: RateCurve, part: list[float]) -> None:
    """expected(times(n)) = n wherever the n-th arrival comes at all."""
    counts = np.sort(np.array(part)) * curve.count
    times_s = curve.times_s(counts)
    assert np.all(np.diff(times_s[np.isfinite(times_s)]) >= 0)
    for count, time_s in zip(counts, times_s, strict=True):
        if math.isfinite(time_s):
            assert curve.expected(time_s) == pytest.approx(count, rel=1e-6, abs=1e-6 * curve.count)


@given(segment=curved | straight)
def test_a_segment_counts_the_area_under_its_rate(segment: Segment) -> None:
    """The count equals numerical integration of the rate, whether straight or exponential."""

    def rate(t: float) -> float:
        x = t / segment.duration_s
        if segment.exponential:
            return float(segment.start_per_s * (segment.end_per_s / segment.start_per_s) ** x)
        return segment.start_per_s + (segment.end_per_s - segment.start_per_s) * x

    assert segment.count == pytest.approx(quad(rate, 0, segment.duration_s)[0], rel=1e-6)


def test_repeating_goes_round_and_holding_stays_at_the_last_rate() -> None:
    """After 10 s at 1/s and 10 s at 3/s, 50 s in: 80 + 10 arrivals by repeating, 40 + 90 by holding."""
    segments = [Segment(10, 1, 1), Segment(10, 3, 3)]
    assert RateCurve(segments, repeat=True).expected(50) == 90
    assert RateCurve(segments, repeat=False).expected(50) == 130


def test_no_arrival_falls_into_a_silent_phase() -> None:
    """A phase at 0/s stays empty."""
    phases = [{"duration": "10s", "request_rate": r} for r in ("50/s", "0/s", "50/s")]
    arrivals = build({"process": "phases", "phases": phases}).arrival_ns
    assert not np.any((arrivals > 10 * 10**9) & (arrivals < 20 * 10**9))
    assert np.any(arrivals > 20 * 10**9)


def test_phases_without_an_end_last_once_through() -> None:
    """Neither num_requests nor duration: the workload ends with the last phase."""
    phases = [{"duration": "10s", "request_rate": "50/s"}, {"duration": "5s", "ramp_to": "10/s"}]
    assert build({"process": "phases", "phases": phases}).arrival_ns[-1] < 15 * 10**9


@pytest.mark.parametrize("burstiness", [0.5, 1.0, 4.0])
@pytest.mark.parametrize(
    ("phase", "expected"),
    [
        ({"request_rate": "20/s"}, 20 * 200),
        ({"request_rate": "0/s", "ramp_to": "40/s"}, 20 * 200),
        ({"request_rate": "40/s", "ramp_to": "10/s"}, 25 * 200),
        ({"request_rate": "5/s", "ramp_to": "40/s", "ramp": "exponential"}, 35 * 200 / math.log(8)),
    ],
)
def test_phases_bring_the_area_under_their_rate(
    phase: dict[str, Any], expected: float, burstiness: float
) -> None:
    """The count is the integral of the rate, within 5 standard deviations sqrt(n/burstiness)."""
    arrival = {"process": "phases", "burstiness": burstiness, "phases": [{"duration": "200s"} | phase]}
    assert abs(len(build(arrival)) - expected) < 5 * math.sqrt(expected / burstiness) + 1


def test_a_ramp_from_zero_fills_its_halves_one_to_three() -> None:
    """Under a straight ramp from 0 the second half has three times the arrivals of the first."""
    phases = [{"duration": "400s", "request_rate": "0/s", "ramp_to": "40/s"}]
    arrivals = build({"process": "phases", "phases": phases}).arrival_ns
    first = np.count_nonzero(arrivals < 200 * 10**9) / len(arrivals)
    assert abs(first - 0.25) < 4 * math.sqrt(0.25 * 0.75 / len(arrivals))


@pytest.mark.parametrize(("key", "value", "mean"), [("rate_scale", 3, 7.5), ("request_rate", "5/s", 5)])
def test_a_scale_sets_the_mean_rate(key: str, value: object, mean: float) -> None:
    """rate_scale multiplies the rates, request_rate replaces their mean (here 2.5/s)."""
    phases = [{"duration": "100s", "request_rate": "1/s"}, {"duration": "100s", "request_rate": "4/s"}]
    count = len(build({"process": "phases", "phases": phases, key: value}))
    assert abs(count - 200 * mean) < 5 * math.sqrt(200 * mean)


@settings(max_examples=20)
@given(start=st.floats(0.5, 50), end=st.floats(0.5, 50))
def test_a_linear_ramp_of_vllm_bench_is_exponential_in_time(start: float, end: float) -> None:
    """vLLM's linear ramp is linear by request index, so request i leaves at N ln(rate_i/start)/(end-start).

    Its rule (vllm/benchmarks/serve.py: gap i is 1/(start + (end-start) i/(N-1))) is summed here.
    """
    n = 5000
    gaps = 1 / (start + (end - start) * np.arange(n) / (n - 1))
    duration_s = 1 / start if start == end else (math.log(end / start) / (end - start))
    curve = RateCurve([Segment(n * duration_s, start, end, exponential=True)], repeat=False)
    ours = curve.times_s(np.arange(1, n + 1, dtype=np.float64))
    assert np.allclose(ours, np.cumsum(gaps), rtol=2e-2, atol=2 / min(start, end))
