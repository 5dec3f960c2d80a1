"""Autocorrelated difficulty does what its four parameters say."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.integrate import quad
from scipy.special import expit
from scipy.stats import norm

from sim.acceptance.latent import Latent, centre_for_mean
from sim.acceptance.spans import Spans
from tests.acceptance.helpers import build, walk, z_of_mean


def z_paths(correlation: float, share: float, requests: int, tokens: int) -> NDArray[np.float64]:
    """Standard normal latents, shape (requests, tokens)."""
    latent = Latent(3, 0.0, 1.0, correlation, share)
    return np.array([latent.log_odds(Spans.one(request, tokens)) for request in range(requests)])


@pytest.mark.parametrize("spread", [0.0, 0.5, 2.0, 8.0, 20.0])
@pytest.mark.parametrize("mean", [0.02, 0.5, 0.9])
def test_the_centre_gives_the_stated_mean(mean: float, spread: float) -> None:
    """Adaptive quadrature of sigmoid(centre + spread N) agrees."""
    centre = centre_for_mean(mean, spread)
    kink = -centre / spread if spread else 0.0
    value, _ = quad(
        lambda x: expit(centre + spread * x) * norm.pdf(x),
        -12,
        12,
        points=[np.clip(kink, -11, 11)],
        limit=200,
    )
    assert value == pytest.approx(mean, abs=1e-6)


@pytest.mark.parametrize(
    ("correlation", "share"), [(0.0, 0.0), (0.5, 0.0), (0.9, 0.0), (0.7, 0.4), (0.0, 1.0)]
)
def test_latents_have_the_stated_moments(correlation: float, share: float) -> None:
    """Unit variance, and autocorrelation share + (1 - share) * correlation^lag over the population."""
    z = z_paths(correlation, share, requests=6000, tokens=12)
    assert abs(z_of_mean(z[:, 0], 0.0)) < 4
    assert abs(z_of_mean(z[:, 9] ** 2, 1.0)) < 4
    for lag in (1, 2, 5):
        expected = share + (1 - share) * correlation**lag
        assert abs(z_of_mean(z[:, 3] * z[:, 3 + lag], expected)) < 4


def test_acceptance_averages_to_the_stated_mean() -> None:
    """Whatever spread, correlation and share, first drafts are accepted at the marginal mean."""
    for spread, correlation, share in [(1.0, 0.0, 0.0), (2.0, 0.9, 0.0), (2.0, 0.5, 0.7)]:
        process = build(
            1, process="latent", mean=0.65, spread=spread, correlation=correlation, request_share=share
        )
        means = [float(process.path(request, 1, 100).run.mean()) for request in range(2000)]
        assert abs(z_of_mean(means, 0.65)) < 4


def test_spread_between_requests_grows_with_spread_and_share() -> None:
    """At one mean, tokens per round differ more between requests as the latent spreads."""

    def deviation(spread: float, share: float) -> float:
        process = build(4, process="latent", mean=0.7, spread=spread, correlation=0.3, request_share=share)
        walks = [walk(process.path(r, 1, 250).run.tolist(), lambda *_: 4) for r in range(300)]
        return float(np.std([np.mean([a for _, a in rounds]) for rounds in walks]))

    assert deviation(0.0, 0.5) * 1.5 < deviation(1.0, 0.5) < deviation(2.0, 0.5)
    assert deviation(1.5, 0.0) * 1.5 < deviation(1.5, 0.3) < deviation(1.5, 1.0)


def test_correlation_makes_neighbouring_rounds_alike() -> None:
    """Accepted lengths of consecutive rounds correlate under a correlated latent, and not otherwise."""

    def lag1(correlation: float) -> float:
        process = build(5, process="latent", mean=0.65, spread=2.0, correlation=correlation)
        rounds = walk(process.path(0, 1, 60_000).run.tolist(), lambda *_: 5)
        accepted = np.array([a for _, a in rounds])
        return float(np.corrcoef(accepted[:-1], accepted[1:])[0, 1])

    assert abs(lag1(0.0)) < 4 / np.sqrt(20_000)
    assert lag1(0.95) > 0.15


@pytest.mark.parametrize(
    ("spread", "correlation", "share"), [(1.0, 0.0, 0.0), (1.5, 0.8, 0.0), (1.0, 0.5, 0.5), (2.0, 0.9, 0.2)]
)
def test_expected_tokens_per_round_match_a_token_by_token_simulation(
    spread: float, correlation: float, share: float
) -> None:
    """A second implementation, token by token over many sequences at once, agrees within its error."""
    process = build(
        7, process="latent", mean=0.65, spread=spread, correlation=correlation, request_share=share
    )
    for depth in (1, 3, 7):
        mean, error = _simulate(centre_for_mean(0.65, spread), spread, correlation, share, depth)
        ours = process.expected_tokens_per_round(depth)
        assert abs(ours - mean) < 4 * np.hypot(error, 0.012 * mean)


def _simulate(
    centre: float, spread: float, correlation: float, share: float, depth: int
) -> tuple[float, float]:
    """Tokens per completed round of 4,000 sequences of 300 tokens, and its standard error."""
    rng = np.random.default_rng(depth)
    sequences, tokens = 4000, 300
    between, within = rng.normal(size=sequences), rng.normal(size=sequences)
    in_round = np.zeros(sequences, dtype=int)
    rounds = np.zeros(sequences)
    for _ in range(tokens):
        z = np.sqrt(share) * between + np.sqrt(1 - share) * within
        accepted = (in_round < depth) & (rng.random(sequences) < expit(centre + spread * z))
        rounds += ~accepted
        in_round = np.where(accepted, in_round + 1, 0)
        within = correlation * within + np.sqrt(1 - correlation**2) * rng.normal(size=sequences)
    emitted = tokens - in_round
    mean = emitted.sum() / rounds.sum()
    error = np.std(emitted - mean * rounds) * np.sqrt(sequences) / rounds.sum()
    return float(mean), float(error)
