"""What a recording says of itself agrees with formulas and brute force."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, logit

from calibrate.recording.statistics import (
    auc,
    autocorrelation,
    describe,
    expected_calibration_error,
    fit_line,
    fit_temperature,
    walk,
)


@settings(max_examples=30, deadline=None)
@given(st.floats(0, 0.99), st.integers(1, 8))
def test_constant_chances_give_the_geometric_law(alpha: float, depth: int) -> None:
    """1 + a + ... + a^k tokens per round (Leviathan et al. 2023, eq. 1), free of end effects by Wald."""
    walked = walk(np.full((3, 30), alpha), depth)
    assert walked.tokens_per_round == pytest.approx(sum(alpha**j for j in range(depth + 1)))
    assert walked.accepted == pytest.approx(walked.reached * alpha)


def test_a_block_is_walked_by_its_start() -> None:
    """Rates by position hold in every round: 1 + c1 + c1 c2 tokens."""
    assert walk(np.tile([0.8, 0.5], (2, 50, 1)), 2).tokens_per_round == pytest.approx(1 + 0.8 + 0.4)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=2, max_size=30))
def test_auc_is_a_comparison_of_pairs(drafts: list[tuple[int, bool]]) -> None:
    """Of every accepted and rejected draft, ties counted half."""
    claims = np.array([c / 5 for c, _ in drafts])
    accepted = np.array([a for _, a in drafts])
    if accepted.all() or not accepted.any():
        return
    higher = np.sign(claims[accepted][:, None] - claims[~accepted]) / 2 + 0.5
    assert auc(claims, accepted.astype(float)) == pytest.approx(higher.mean())


def test_a_temperature_undoes_itself() -> None:
    """Chances that are claims at temperature 2 are found at 2, and calibrated claims err by nothing."""
    claims = np.random.default_rng(0).uniform(0.02, 0.98, 5000)
    chance = expit(logit(claims) / 2)
    assert fit_temperature(claims, chance) == pytest.approx(2, rel=1e-3)
    assert fit_line(claims, expit(0.5 * logit(claims) + 0.7)) == pytest.approx((0.5, 0.7), rel=1e-3)
    assert expected_calibration_error(chance, chance) == pytest.approx(0)
    assert expected_calibration_error(np.full(10, 0.7), np.full(10, 0.4)) == pytest.approx(0.3)


def test_autocorrelation_is_that_of_an_autoregression() -> None:
    """An AR(1) of correlation 0.6 has 0.6 and 0.36 at lags 1 and 2."""
    noise = np.random.default_rng(0).standard_normal((20, 5000))
    x = np.zeros_like(noise)
    for t in range(1, noise.shape[1]):
        x[:, t] = 0.6 * x[:, t - 1] + 0.8 * noise[:, t]
    assert autocorrelation(x, 1) == pytest.approx(0.6, abs=0.02)
    assert autocorrelation(x, 2) == pytest.approx(0.36, abs=0.02)


def test_equal_requests_spread_no_more_than_luck() -> None:
    """Bits of one rate: the spread of request means is the binomial one."""
    bits = (np.random.default_rng(0).random((400, 200)) < 0.7).astype(float)
    requests = describe(bits, np.full(bits.shape, 0.5))["requests"]
    assert requests["mean_chance_sd"] == pytest.approx(
        requests["mean_chance_sd_if_equal_and_independent"], rel=0.15
    )
