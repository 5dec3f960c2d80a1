"""The order-statistic interval of the median, and the stop rule built on it."""

from __future__ import annotations

from itertools import count

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from calibrate.timing.samples import FEWEST, Limits, interval_rank, median_interval, settled
from calibrate.timing.timer import collect

POSITIVE = st.floats(1e-3, 1e6)


@given(st.integers(1, 400))
def test_the_rank_is_the_largest_that_encloses_the_median_with_95_percent(n: int) -> None:
    rank = interval_rank(n)
    assert rank == binom.ppf(0.025, n, 0.5) or 2 * binom.cdf(rank - 1, n, 0.5) <= 0.05
    assert 2 * binom.cdf(rank, n, 0.5) > 0.05 or rank == n // 2


def test_fewer_than_six_samples_have_no_such_interval() -> None:
    assert [interval_rank(n) for n in (1, 5, 6, 8, 9)] == [0, 0, 1, 1, 2]
    assert FEWEST == 6


@given(st.lists(POSITIVE, min_size=1, max_size=60))
def test_the_interval_encloses_the_median_and_lies_within_the_samples(samples: list[float]) -> None:
    low, high = median_interval(samples)
    assert min(samples) <= low <= np.median(samples) <= high <= max(samples)


@pytest.mark.parametrize("n", [6, 12, 25, 60, 200])
def test_the_interval_covers_the_true_median_in_about_95_percent_of_the_cases(n: int) -> None:
    """Log-normal times of median 1; 2,000 draws leave a sampling error of 1.5 %."""
    draws = np.random.default_rng(n).lognormal(0, 0.3, (2000, n))
    covered = np.mean([low <= 1 <= high for low, high in map(median_interval, draws.tolist())])
    exact = 1 - 2 * binom.cdf(interval_rank(n) - 1, n, 0.5)
    assert covered == pytest.approx(exact, abs=0.015)
    assert 0.95 <= exact < 0.985


def test_quiet_windows_stop_at_the_fewest() -> None:
    readings, hit = collect(lambda: {"us": 10.0}, "us", Limits(), now=lambda: 0.0)
    assert (len(readings), hit) == (FEWEST, False)


def test_noisy_windows_stop_at_the_cap() -> None:
    clock, noise = count(step=0.01), np.random.default_rng(0)
    readings, hit = collect(
        lambda: {"us": noise.lognormal(0, 1)}, "us", Limits(cap_s=0.4), now=lambda: next(clock)
    )
    assert hit
    assert 35 <= len(readings) <= 45, "0.4 s of windows of 0.01 s"


def test_a_slow_cell_gets_the_fewest_windows_even_beyond_the_cap() -> None:
    clock, noise = count(step=5.0), np.random.default_rng(0)
    readings, _ = collect(lambda: {"us": noise.lognormal(0, 1)}, "us", Limits(cap_s=0.4), lambda: next(clock))
    assert len(readings) == FEWEST


@given(st.integers(0, 2**32 - 1))
def test_what_has_settled_has_a_narrow_interval(seed: int) -> None:
    noise, limits = np.random.default_rng(seed), Limits(cap_s=1e9)
    readings, hit = collect(lambda: {"us": noise.lognormal(0, 0.01)}, "us", limits, lambda: 0.0)
    us = [reading["us"] for reading in readings]
    low, high = median_interval(us)
    assert not hit
    assert high - low < 0.01 * np.median(us)
    assert settled(us, limits)
