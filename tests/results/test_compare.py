"""Policies are compared in pairs over seeds, and only a difference beyond chance counts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from sim.errors import InputError
from sim.results.compare import Best, Cell, Comparison, against, best_policy, paired_difference
from tests.results.build import metrics, policy

TPOT = "tpot_mean_ms"
POSITIVE = st.floats(0.1, 1e4)
PAIRS = st.lists(st.tuples(POSITIVE, POSITIVE), min_size=2, max_size=12)


@pytest.mark.parametrize("seeds", [3, 5, 10])
def test_interval_covers_the_true_difference_at_95_percent(seeds: int) -> None:
    """Of 4,000 sets of paired normals 95 % +- 1.2 % have the true difference in their interval."""
    rng = np.random.default_rng(seeds)
    base = rng.normal(10, 3, (4_000, seeds))
    other = base + rng.normal(-0.5, 1, (4_000, seeds))
    found = [paired_difference(TPOT, b, o) for b, o in zip(base.tolist(), other.tolist(), strict=True)]
    covered = np.mean([abs(d.mean + 0.5) <= d.half_width for d in found])
    assert covered == pytest.approx(0.95, abs=0.012)


@given(PAIRS)
def test_interval_is_scipy_s_paired_t(pairs: list[tuple[float, float]]) -> None:
    """The interval is that of SciPy's paired t test on the same values."""
    base, other = np.array(pairs).T
    found = paired_difference(TPOT, base.tolist(), other.tolist())
    assert found.mean == pytest.approx(float(np.mean(other - base)), abs=1e-9)
    if np.ptp(other - base) > 1e-6:
        low, high = stats.ttest_rel(other, base).confidence_interval(0.95)
        assert found.half_width == pytest.approx((high - low) / 2, rel=1e-6)


@given(PAIRS)
def test_swapping_policies_turns_the_verdict_round(pairs: list[tuple[float, float]]) -> None:
    """Better one way is worse the other way, and the difference changes only its sign."""
    base, other = ([pair[i] for pair in pairs] for i in (0, 1))
    forth, back = paired_difference(TPOT, base, other), paired_difference(TPOT, other, base)
    assert forth.mean == pytest.approx(-back.mean, abs=1e-9)
    assert back.verdict == {"better": "worse", "worse": "better"}.get(forth.verdict, forth.verdict)


@given(st.lists(POSITIVE, min_size=1, max_size=9))
def test_policy_does_not_differ_from_itself(values: list[float]) -> None:
    """Equal values are no difference, even with one seed."""
    found = paired_difference(TPOT, values, values)
    assert (found.mean, found.ratio, found.verdict) == (0, 1, "no difference")


@given(PAIRS, st.floats(0.01, 100))
def test_ratio_does_not_depend_on_the_unit(pairs: list[tuple[float, float]], factor: float) -> None:
    """Ratio and its width are the same in ms and in s."""
    base, other = ([pair[i] for pair in pairs] for i in (0, 1))
    plain = paired_difference(TPOT, base, other)
    scaled = paired_difference(TPOT, [factor * v for v in base], [factor * v for v in other])
    assert scaled.ratio == pytest.approx(plain.ratio)
    assert scaled.ratio_half_width == pytest.approx(plain.ratio_half_width, abs=1e-9)


def test_pairing_removes_what_the_seed_does_to_both() -> None:
    """A gain of 1 % shows although seeds differ by 50 %: unpaired it would drown."""
    base = [10.0, 15.0, 12.0, 14.0, 11.0]
    found = paired_difference(TPOT, base, [0.99 * value for value in base])
    assert found.verdict == "better"
    assert found.ratio == pytest.approx(0.99)
    assert found.ratio_half_width == pytest.approx(0, abs=1e-9)


def test_one_seed_has_no_interval_and_says_so() -> None:
    """With one pair the verdict is that there is one seed, and the widths are NaN."""
    found = paired_difference(TPOT, [10.0], [9.0])
    assert found.verdict == "one seed"
    assert np.isnan([found.half_width, found.ratio_half_width]).all()


def test_difference_within_the_profile_s_error_is_none() -> None:
    """A certain gain of 3 % counts for nothing if step times are known to 5 %, and counts at 2 %."""
    base, other = [10.0, 10.0, 10.0], [9.7, 9.7, 9.7]
    assert paired_difference(TPOT, base, other, error=0.05).verdict == "no difference"
    assert paired_difference(TPOT, base, other, error=0.02).verdict == "better"


@pytest.mark.parametrize(
    ("metric", "verdict"),
    [(TPOT, "worse"), ("goodput_per_s", "better"), ("depth_mean", "differs")],
)
def test_direction_belongs_to_the_metric(metric: str, verdict: str) -> None:
    """More latency is worse, more goodput better, more depth neither."""
    assert paired_difference(metric, [1.0, 1.0], [2.0, 2.0]).verdict == verdict


def test_missing_values_leave_their_pair_out() -> None:
    """A metric that one run lacks is compared over the other seeds, and over none it has no data."""
    nan = float("nan")
    assert paired_difference(TPOT, [1.0, nan, 3.0], [2.0, 2.0, 4.0]).pairs == 2
    assert paired_difference(TPOT, [nan], [1.0]).verdict == "no data"


OFF = policy("off", [20.0, 21.0, 22.0])
FAST = policy("fast", [10.0, 10.5, 11.1])
EVEN = policy("even", [10.1, 10.4, 11.1])
BOUND = policy("oracle", [5.0, 5.0, 5.0], bound=True)
BROKEN = policy("broken", [1.0, 1.0, 1.0], unstable=True)
CELL = Cell("2/s", (OFF, FAST, EVEN, BOUND, BROKEN))


def test_best_policy_comes_with_those_even_with_it() -> None:
    """Neither the bound nor the unstable policy can win, however good their numbers look."""
    best = best_policy(CELL, TPOT)
    assert best.even == ("fast", "even")
    assert best.label in best.even


def test_best_of_nothing_stable_is_none() -> None:
    """Where every policy is unstable none is best."""
    assert best_policy(Cell("9/s", (BROKEN,)), TPOT) == Best(None, ())


def test_highest_throughput_wins() -> None:
    """For a metric of which more is better the largest mean is best."""
    assert best_policy(Cell("2/s", (OFF, FAST)), "output_tokens_per_s").label == "fast"


def test_depth_cannot_decide() -> None:
    """A metric without direction has no best policy."""
    with pytest.raises(InputError, match="no better direction"):
        best_policy(CELL, "depth_mean")


def test_unstable_policy_has_no_mean_and_no_difference() -> None:
    """One unstable seed is enough: no mean of the policy is reported."""
    assert np.isnan(BROKEN.mean(TPOT))
    assert against(CELL, "off", TPOT)[-1] is None
    assert against(CELL, "broken", TPOT) == (None,) * 5


def test_comparison_checks_its_cells() -> None:
    """An unknown baseline or metric, unequal numbers of seeds and equal labels are refused."""
    with pytest.raises(InputError, match="it has off, fast, even"):
        Comparison((CELL,), "on")
    with pytest.raises(InputError, match="unknown metric 'speed'"):
        Comparison((CELL,), "off", "speed")
    with pytest.raises(InputError, match="different numbers of seeds"):
        Comparison((Cell("2/s", (OFF, policy("short", [1.0]))),), "off")
    with pytest.raises(InputError, match="same label"):
        Comparison((Cell("2/s", (OFF, OFF)),), "off")


def test_metrics_of_a_run_know_whether_it_is_unstable() -> None:
    """The flag travels with the numbers."""
    assert metrics(unstable=True).unstable
    assert not metrics().unstable
