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
from sim.workload.build import build_requests
from tests.workload.support import SHORT, build, configure, dispersion, locate, same

POISSON: dict[str, Any] = {"process": "poisson", "request_rate": "4/s"}
GAMMA: dict[str, Any] = {"process": "gamma", "request_rate": "4/s", "cv": 2.2}
CONSTANT: dict[str, Any] = {"process": "constant", "request_rate": "4/s"}
PHASES: dict[str, Any] = {
    "process": "phases",
    "phases": [{"duration": "60s", "request_rate": "4/s"}, {"duration": "30s", "ramp_to": "9/s"}],
}
PROFILE: dict[str, Any] = {"process": "profile", "from": "azure-2023-conversation"}


def each(*arrivals: dict[str, Any]) -> pytest.MarkDecorator:
    """Run a test once per arrival, named by its process."""
    return pytest.mark.parametrize("arrival", arrivals, ids=lambda arrival: str(arrival["process"]))


@each(POISSON, GAMMA, CONSTANT, PHASES, PROFILE)
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**40), count=st.integers(1, 300), more=st.integers(0, 300))
def test_more_requests_begin_with_the_same_ones(
    arrival: dict[str, Any], seed: int, count: int, more: int
) -> None:
    """A longer run repeats the shorter one and goes on; arrivals never go back."""
    short, long = build(arrival, seed, num_requests=count), build(arrival, seed, num_requests=count + more)
    assert len(short) == count
    assert np.array_equal(short.arrival_ns, long.arrival_ns[:count])
    assert np.all(np.diff(long.arrival_ns) >= 0)


@each(POISSON, GAMMA, CONSTANT, PHASES, PROFILE)
def test_a_duration_keeps_exactly_the_arrivals_before_it(arrival: dict[str, Any]) -> None:
    """Ending by time is ending by count at the first arrival that is too late."""
    timed = build(arrival, duration="100s")
    counted = build(arrival, num_requests=len(timed) + 1)
    assert np.array_equal(timed.arrival_ns, counted.arrival_ns[:-1])
    assert timed.arrival_ns[-1] < 100 * 10**9 <= counted.arrival_ns[-1]


@each(POISSON, GAMMA, CONSTANT, PHASES, PROFILE)
def test_of_two_ends_the_first_counts(arrival: dict[str, Any]) -> None:
    """With num_requests and duration the earlier of the two ends the workload."""
    assert len(build(arrival, num_requests=7, duration="100s")) == 7
    assert same(build(arrival, num_requests=100_000, duration="100s"), build(arrival, duration="100s"))


@each(POISSON, GAMMA, CONSTANT)
@given(factor=st.floats(0.1, 10))
@settings(max_examples=20, deadline=None)
def test_another_rate_is_the_same_arrivals_rescaled(arrival: dict[str, Any], factor: float) -> None:
    """At a rate ``factor`` times as high every arrival comes 1/factor as late, to 1 ns of rounding."""
    config = configure(arrival, num_requests=200)
    slow = build_requests(config, 1, locate).arrival_ns
    fast = build_requests(config.at_rate(4 * factor), 1, locate).arrival_ns
    assert np.abs(fast - slow / factor).max() <= 0.5 + 0.5 / factor + 1e-3


def test_phases_squeezed_in_time_are_the_same_arrivals_squeezed() -> None:
    """Half the durations at twice the rates halve every arrival time."""
    squeezed = [{"duration": "30s", "request_rate": "8/s"}, {"duration": "15s", "ramp_to": "18/s"}]
    long = build(PHASES, num_requests=500).arrival_ns
    short = build({"process": "phases", "phases": squeezed}, num_requests=500).arrival_ns
    assert np.abs(long - 2 * short).max() <= 2


def test_a_profile_squeezed_in_time_is_the_same_arrivals_squeezed() -> None:
    """time_scale 1/2 with rate_scale 2 halves every arrival time."""
    long = build(PROFILE, num_requests=30_000).arrival_ns
    short = build(PROFILE | {"time_scale": 0.5, "rate_scale": 2}, num_requests=30_000).arrival_ns
    assert np.abs(long - 2 * short).max() <= 2


@pytest.mark.parametrize(
    "change",
    [
        {"lengths": {"input": 3000, "output": 9}},
        {"classes": [{"name": name, "share": 0.5, "lengths": SHORT} for name in ("a", "b")]},
    ],
    ids=["lengths", "classes"],
)
def test_arrivals_do_not_depend_on_what_arrives(change: dict[str, Any]) -> None:
    """Lengths, classes and a bound at the client leave the arrival stream alone."""
    changed = build(POISSON | {"max_concurrency": 3}, num_requests=50, **change)
    assert np.array_equal(changed.arrival_ns, build(POISSON, num_requests=50).arrival_ns)


def test_gamma_of_burstiness_one_is_poisson() -> None:
    """The gamma distribution of shape 1 is the exponential, so both processes agree."""
    as_gamma = {"process": "gamma", "request_rate": "4/s", "burstiness": 1}
    assert np.array_equal(
        build(as_gamma, num_requests=100).arrival_ns, build(POISSON, num_requests=100).arrival_ns
    )


def test_cv_is_another_name_for_burstiness() -> None:
    """burstiness = 1/cv^2 (vllm bench serve: CV = 1/sqrt(burstiness))."""
    by_shape = {"process": "gamma", "request_rate": "4/s", "burstiness": 0.25}
    by_cv = {"process": "gamma", "request_rate": "4/s", "cv": 2}
    assert same(build(by_shape, num_requests=100), build(by_cv, num_requests=100))


@pytest.mark.parametrize("cv", [0.3, 1.0, 2.2])
def test_gaps_follow_the_gamma_law(cv: float) -> None:
    """Gaps have mean 1/rate and the stated CV (4 standard errors) and pass Kolmogorov-Smirnov."""
    n, shape = 100_000, cv**-2
    arrivals = build({"process": "gamma", "request_rate": "4/s", "cv": cv}, num_requests=n).arrival_ns
    gaps = np.diff(arrivals, prepend=0) / 1e9
    assert abs(gaps.mean() * 4 - 1) < 4 * cv / math.sqrt(n)
    kurtosis = 6 / shape
    assert abs(gaps.var() * 16 / cv**2 - 1) < 4 * math.sqrt((kurtosis + 2) / n)
    law, tick = gamma(shape, scale=1 / (4 * shape)), 1e-6  # below a microsecond, rounding to ns shows
    above = kstest(gaps[gaps > tick], lambda x: (law.cdf(x) - law.cdf(tick)) / law.sf(tick))
    assert above.pvalue > 1e-3


@pytest.mark.parametrize("window_s", [1, 10])
def test_poisson_counts_have_an_index_of_dispersion_of_one(window_s: int) -> None:
    """Variance over mean of window counts is 1, within 4 standard errors sqrt(2/windows)."""
    arrivals = build(POISSON, duration="5000s").arrival_ns
    assert abs(dispersion(arrivals, window_s, 5000) - 1) < 4 * math.sqrt(2 / (5000 / window_s))


@given(seed=st.integers(0, 2**40))
@settings(max_examples=25, deadline=None)
def test_poisson_rate_lies_within_its_sampling_interval(seed: int) -> None:
    """The count in 1000 s at 4/s is 4000, within 5 standard deviations."""
    assert abs(len(build(POISSON, seed, duration="1000s")) - 4000) < 5 * math.sqrt(4000)


def test_constant_arrivals_are_multiples_of_the_gap() -> None:
    """At 4/s requests come every 250 ms from 0, 40 of them in 10 s."""
    arrivals = build(CONSTANT, duration="10s").arrival_ns
    assert arrivals.tolist() == [250_000_000 * i for i in range(40)]


@each(POISSON, GAMMA)
def test_normalised_arrivals_end_where_vllm_bench_puts_the_last(arrival: dict[str, Any]) -> None:
    """The last of n requests arrives at n/rate, the others in proportion (vllm/benchmarks/serve.py)."""
    plain = build(arrival, num_requests=100).arrival_ns
    normalised = build(arrival | {"normalise": True}, num_requests=100).arrival_ns
    assert normalised[-1] == 25 * 10**9
    assert np.abs(normalised - plain * (25e9 / plain[-1])).max() <= 2


def test_a_closed_loop_intends_everything_at_once() -> None:
    """All intended arrivals are 0 and the bound reaches the client."""
    requests = build({"process": "closed", "max_concurrency": 8}, num_requests=100)
    assert requests.arrival_ns.tolist() == [0] * 100
    assert requests.max_concurrency == 8


def test_a_bound_may_come_with_open_arrivals() -> None:
    """max_concurrency of an open process is the client's semaphore; none means open loop."""
    assert build(POISSON | {"max_concurrency": 5}, num_requests=2).max_concurrency == 5
    assert build(POISSON, num_requests=2).max_concurrency is None


def test_at_concurrency_changes_the_bound_alone() -> None:
    """Sweeping the clients of a closed loop keeps its requests."""
    config = configure({"process": "closed", "max_concurrency": 8}, num_requests=10)
    assert build_requests(config.at_concurrency(2), 1, locate).max_concurrency == 2


def test_a_closed_loop_has_no_rate_to_set() -> None:
    """Sweeping the rate of a closed loop is refused with what to vary instead."""
    with pytest.raises(InputError, match="vary max_concurrency"):
        configure({"process": "closed", "max_concurrency": 8}, num_requests=10).at_rate(3.0)


def test_a_workload_without_requests_is_refused() -> None:
    """A duration too short for any arrival is an error, not an empty run."""
    with pytest.raises(InputError, match="no request"):
        build({"process": "poisson", "request_rate": "1/h"}, duration="1ns")


def test_a_workload_too_large_to_hold_is_refused() -> None:
    """A billion requests are refused before memory runs out."""
    with pytest.raises(InputError, match=r"about 3\.6e\+09 requests"):
        build({"process": "poisson", "request_rate": "1000/s"}, duration="1000h")


def test_seeds_differ() -> None:
    """Another seed gives other arrivals."""
    assert not np.array_equal(
        build(POISSON, 1, num_requests=5).arrival_ns, build(POISSON, 2, num_requests=5).arrival_ns
    )
