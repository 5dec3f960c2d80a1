"""Likelihood of accepted drafts in their order, under processes that wander along the output.

A round that starts at output position p and accepts a of k drafts has tested positions p to
p + a - 1 with success, p + a with failure if a < k, and no other. Rounds in order are therefore one
row of tested and untested positions per request, whatever depths a policy chose. A process whose
rate follows a chain of states gives such a row its probability by the forward recursion (Rabiner
1989, section III); a constant of the request is a mixture of chains.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logsumexp
from scipy.stats import binom

from sim.acceptance.config import LatentAcceptance, MarkovAcceptance
from sim.acceptance.fit.evidence import Request
from sim.acceptance.latent import centre_for_mean
from sim.acceptance.markov import Markov, good_share, survival_in_walks

Floats = NDArray[np.float64]
Codes = NDArray[np.int16]

MOST_REQUESTS = 200
MOST_POSITIONS = 400
"""A fit looks at this much; more hardly moves it and takes its time."""

COARSE, FINE = (9, 5), (25, 15)
"""States of the chain that stands for a Gaussian autoregression, and nodes of the mixture that stands
for a Gaussian constant of the request: for likelihoods, and for tokens per round."""

_RESCALE = 8  # positions between rescalings: no product of as many rates underflows


@dataclass(frozen=True)
class Rows:
    """Requests as rows of positions, longest first.

    ``codes[t, r]`` is 0 where position ``t`` was not tested, 1 + 2j where draft ``j`` of its round
    was rejected there and 2 + 2j where it was accepted. ``live[t]`` requests reach position ``t``.
    """

    codes: Codes
    live: NDArray[np.int64]
    depth: int


def tested(requests: Sequence[Request]) -> Rows:
    """Rows of the first ``MOST_POSITIONS`` positions of evenly chosen requests."""
    step = max(1, -(-len(requests) // MOST_REQUESTS))
    rows = sorted((_codes(request) for request in requests[::step]), key=len, reverse=True)
    codes = np.zeros((len(rows[0]), len(rows)), dtype=np.int16)
    for i, row in enumerate(rows):
        codes[: len(row), i] = row
    lengths = np.array([len(row) for row in rows])
    live = np.array([(lengths > t).sum() for t in range(len(codes))], dtype=np.int64)
    return Rows(codes, live, max(request.depth for request in requests))


def _codes(request: Request) -> list[int]:
    codes: list[int] = []
    for drafted, accepted in request.steps:
        codes += [2 + 2 * j for j in range(accepted)]
        codes.append(1 + 2 * accepted if accepted < drafted else 0)
        if len(codes) >= MOST_POSITIONS:
            break
    return codes[:MOST_POSITIONS]


@dataclass(frozen=True)
class Chains:
    """A mixture of chains with one transition matrix.

    ``rates`` has shape (chains, states), ``weights`` (chains,), ``start`` (states,).
    """

    rates: Floats
    weights: Floats
    transition: Floats
    start: Floats
    by_depth: Floats


def log_likelihood(seen: Rows, chains: Chains) -> float:
    """Log probability of all rows."""
    chance = _chances(chains)[:, :, None, :]
    shape = (seen.codes.shape[1], len(chains.weights), len(chains.start))
    chance = np.ascontiguousarray(chance[:, :, 0, :])
    state, total = np.broadcast_to(chains.start, shape).copy(), np.zeros(shape[:2])
    for t, live in enumerate(seen.live.tolist()):
        alive = state[:live] * chance[seen.codes[t, :live]]
        if t % _RESCALE == _RESCALE - 1:
            scale = alive.sum(axis=2)
            total[:live] += np.log(scale)
            alive /= scale[:, :, None]
        state[:live] = (alive.reshape(-1, shape[2]) @ chains.transition).reshape(alive.shape)
    total += np.log(state.sum(axis=2))
    return float(logsumexp(total + np.log(chains.weights), axis=1).sum())


def _chances(chains: Chains) -> Floats:
    """Probability of each code in each state, shape (codes, chains, states)."""
    accepted = chains.by_depth[:, None, None] * chains.rates
    chance = np.ones((1 + 2 * len(chains.by_depth), *chains.rates.shape))
    chance[1::2], chance[2::2] = 1 - accepted, accepted
    return np.maximum(chance, 1e-30)


def survival_in_walks_of(chains: Chains) -> Floats:
    """Share of rounds that accept at least 1, 2, ... drafts, over long requests of equal output."""
    each = np.array([survival_in_walks(own, chains.transition, chains.by_depth) for own in chains.rates])
    rounds = chains.weights / (1 + each.sum(axis=1))
    return np.asarray(rounds @ each / rounds.sum())


def chains_of(
    config: MarkovAcceptance | LatentAcceptance, depth: int, size: tuple[int, int] = COARSE
) -> Chains:
    """The chains that ``config`` stands for, with ``depth`` drafts in a round."""
    if isinstance(config, LatentAcceptance):
        return _latent(config, depth, *size)
    chain = Markov(0, config.good, config.bad, config.leave_good, config.leave_bad)
    share = good_share(config.leave_good, config.leave_bad)
    start = np.array([share, 1 - share])
    return Chains(chain.rates[None, :], np.ones(1), chain.transition, start, config.decays(depth))


def _latent(config: LatentAcceptance, depth: int, states: int, nodes: int) -> Chains:
    """A Gaussian autoregression as a chain of ``states`` states (Rouwenhorst's method).

    The method matches mean, variance and autocorrelation exactly at any correlation (Kopecky and
    Suen 2010); its stationary law is binomial.
    """
    constant, weights = np.polynomial.hermite_e.hermegauss(nodes)
    grid = np.linspace(-1, 1, states) * np.sqrt(states - 1)
    own, along = np.sqrt(config.request_share), np.sqrt(1 - config.request_share)
    odds = config.spread * (own * constant[:, None] + along * grid)
    return Chains(
        rates=expit(centre_for_mean(config.mean, config.spread) + odds),
        weights=weights / weights.sum(),
        transition=_rouwenhorst(config.correlation, states),
        start=binom.pmf(np.arange(states), states - 1, 0.5),
        by_depth=config.decays(depth),
    )


def _rouwenhorst(correlation: float, states: int) -> Floats:
    """Transition matrix of the chain with this lag-1 autocorrelation."""
    stay = (1 + correlation) / 2
    matrix = np.array([[stay, 1 - stay], [1 - stay, stay]])
    while len(matrix) < states:
        larger = np.zeros((len(matrix) + 1,) * 2)
        larger[:-1, :-1] += stay * matrix
        larger[:-1, 1:] += (1 - stay) * matrix
        larger[1:, :-1] += (1 - stay) * matrix
        larger[1:, 1:] += stay * matrix
        larger[1:-1] /= 2
        matrix = larger
    return matrix
