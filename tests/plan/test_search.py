"""The search for rates and replicas, on trials whose answer is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from sim.plan.money import Prices, by_profile, cost_per_million, kwh_per_million
from sim.plan.probe import hopeless
from sim.plan.search import highest
from sim.plan.size import TOLERANCE, size
from tests.plan.support import probe, stepwise

RATES = st.floats(0.02, 5000)


@given(RATES, st.floats(0.1, 1000), st.sampled_from([1.15, 2.0]), st.sampled_from([0.01, 0.03, 0.1]))
def test_the_search_closes_on_the_rate_at_which_trials_turn(
    capacity: float, start: float, factor: float, tolerance: float
) -> None:
    found = highest(lambda rate: stepwise(capacity, rate), start, factor, tolerance, (1e-6, 1e9))
    assert found.holds is not None
    assert found.fails is not None
    assert found.holds.rate_per_s <= capacity < found.fails.rate_per_s
    assert found.fails.rate_per_s <= (1 + tolerance) * found.holds.rate_per_s


@given(RATES)
def test_the_search_ends_where_no_rate_holds_or_none_fails(start: float) -> None:
    never = highest(lambda rate: probe(rate, 2.0), start, 2.0, 0.03, (start / 50, start * 50))
    always = highest(lambda rate: probe(rate, 0.5), start, 2.0, 0.03, (start / 50, start * 50))
    assert never.holds is None
    assert never.fails is not None
    assert never.fails.rate_per_s <= start / 25
    assert always.fails is None
    assert always.holds is not None
    assert always.holds.rate_per_s >= start * 25


@given(st.floats(1, 100), st.floats(0.1, 3000), st.floats(0.0, 0.3))
def test_the_fleet_is_the_smallest_that_holds(one: float, peak: float, pooling: float) -> None:
    """Replicas that pool serve n^(1 + pooling) times one; the answer holds and one less does not."""
    peak = min(peak, 60 * one)

    def capacity(replicas: int) -> float:
        return float(one * replicas ** (1 + pooling))

    found = size(lambda rate, n: stepwise(capacity(n), rate, n), peak, one)
    assert found is not None
    assert capacity(found.replicas) >= peak * (1 - 1e-9)
    if found.replicas > 1:
        assert capacity(found.replicas - 1) < peak
        assert found.smaller is not None
        assert found.smaller.replicas == found.replicas - 1
        assert found.highest_per_s <= capacity(found.replicas) * (1 + 1e-9)
        assert found.highest_per_s * (1 + TOLERANCE) >= capacity(found.replicas) * (1 - 1e-9)
    assert found.headroom >= 0


@given(st.floats(1, 50), st.integers(2, 6))
def test_a_fleet_that_pools_badly_takes_more_than_division_says(one: float, count: int) -> None:
    found = size(lambda rate, n: stepwise(0.8 * n * one, rate, n), count * one, one)
    assert found is not None
    assert found.replicas == math.ceil(count / 0.8)


def test_where_no_number_of_replicas_helps_there_is_no_fleet() -> None:
    assert size(lambda rate, n: probe(rate, 2.0, replicas=n), 10.0, 5.0) is None


@given(st.lists(st.floats(0.2, 1.8), min_size=2, max_size=8))
def test_a_rate_holds_by_the_interval_of_students_t(used: list[float]) -> None:
    """Second implementation: SciPy's test of the mean against the limit, at 2.5 % to either side."""
    found = probe(1.0, *used)
    if np.std(used) > 1e-9:
        below = float(stats.ttest_1samp(used, 1.0, alternative="less").pvalue)
        above = float(stats.ttest_1samp(used, 1.0, alternative="greater").pvalue)
        if min(abs(below - 0.025), abs(above - 0.025)) > 1e-6:
            assert found.outcome == ("meets" if below < 0.025 else "misses" if above < 0.025 else "undecided")


@given(st.lists(st.floats(0, 3), max_size=40), st.integers(0, 40), st.floats(1e-6, 5))
def test_a_trial_that_a_hopeless_seed_ends_never_meets(others: list[float], more: int, beyond: float) -> None:
    """Neither as it stands nor with the seeds that it was spared."""
    limit = hopeless(len(others) + 1 + more)
    assert not probe(1.0, *others, limit + beyond).meets
    assert not probe(1.0, *others, limit + beyond, *(0.0,) * more).meets


@pytest.mark.parametrize("seeds", [6, 10, 40])
def test_a_seed_that_others_can_make_up_for_is_not_hopeless(seeds: int) -> None:
    assert probe(1.0, *(0.0,) * (seeds - 1), 0.999 * hopeless(seeds)).meets


def test_an_unstable_seed_is_a_miss_whatever_its_latencies() -> None:
    assert probe(1.0, 0.1, 0.1, reason="backlog grew").outcome == "misses"
    assert probe(1.0, 0.1, 0.1).outcome == "meets"


def test_money_and_energy_are_those_of_the_time_that_a_million_tokens_take() -> None:
    """8 GPUs at 2.50 an hour and 700 W each, 1000 tokens/s: a million take 1000 s."""
    assert cost_per_million(8, 2.5, 1000.0) == pytest.approx(8 * 2.5 * 1000 / 3600)
    assert kwh_per_million(8, 700.0, 1000.0) == pytest.approx(8 * 0.7 * 1000 / 3600)


def test_a_price_may_be_one_profiles_own() -> None:
    prices = Prices(by_profile("--price", ["2.5", "b200=4"], ["h100", "b200"]))
    assert (prices.of("h100"), prices.of("b200"), prices.watts_of("h100")) == (2.5, 4.0, None)
