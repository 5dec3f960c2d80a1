"""From configuration to process: one small function per kind of acceptance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path as FilePath
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from sim.acceptance.base import AcceptanceProcess
from sim.acceptance.confidence import make_claims
from sim.acceptance.config import (
    AcceptanceConfig,
    BetaAcceptance,
    IidAcceptance,
    LatentAcceptance,
    MarkovAcceptance,
    MeanLengthAcceptance,
    PerPositionAcceptance,
    TraceAcceptance,
)
from sim.acceptance.latent import Latent, centre_for_mean
from sim.acceptance.lookup import with_match
from sim.acceptance.markov import Markov, good_share, survival_from, survival_in_walks
from sim.acceptance.paths import MAX_DEPTH, Chance, DrawnProcess, certain
from sim.acceptance.replay import TraceProcess, conditional_rates, tokens_per_round
from sim.acceptance.spans import Spans
from sim.acceptance.survey import Survey
from sim.acceptance.trace import read_trace
from sim.acceptance.trees import Siblings
from sim.errors import InputError
from sim.streams import uniforms_of

Floats = NDArray[np.float64]

_SURVEY_SEED = -1  # no run has it, so an expectation is never fitted to a run's own luck
_SURVEY_REQUESTS = 2048
_SURVEY_TOKENS = 128
_QUANTILES = (np.arange(1024) + 0.5) / 1024


def build_process(
    config: AcceptanceConfig, seed: int, max_depth: int, locate: Callable[[str], FilePath]
) -> AcceptanceProcess:
    """Build the process ``config`` describes, with runs of at most ``max_depth``.

    ``locate`` turns a path written in the scenario into a file. Raises ``InputError`` for a depth
    beyond 255 or beyond a recording, and ``TraceError`` for a bad trace row.
    """
    if not 0 <= max_depth <= MAX_DEPTH:
        raise InputError(f"depth {max_depth} is outside 0..{MAX_DEPTH}")
    process = _process(config, seed, max_depth, locate)
    return process if config.match is None else with_match(process, config.match, seed)


def _process(
    config: AcceptanceConfig, seed: int, max_depth: int, locate: Callable[[str], FilePath]
) -> AcceptanceProcess:
    if isinstance(config, TraceAcceptance):
        return _trace(config, seed, max_depth, locate(config.path))
    model = _model(config, seed, max_depth)
    claims = make_claims(config.confidence, seed, model.base)
    return DrawnProcess(
        seed,
        model.by_depth,
        model.chance,
        config.decay,
        claims,
        cache(lambda depth: 1 + float(model.survival(depth).sum())),
        Siblings(config.sibling, cache(model.base)),
    )


class _Model(NamedTuple):
    """What distinguishes one parametric process from another.

    ``by_depth`` and ``base()`` have shape (max_depth,): a draft's rate beside its token's chance,
    and acceptance by depth over the population of start positions. ``survival(k)`` has shape (k,):
    the share of rounds that accept at least 1, 2, ... of k drafts in long generations at depth k.
    """

    by_depth: Floats
    chance: Chance
    base: Callable[[], Floats]
    survival: Callable[[int], Floats]


def expected_survival(config: AcceptanceConfig, depth: int) -> Floats:
    """Share of rounds of ``depth`` drafts that accept at least 1, 2, ... of them, shape (depth,).

    Over the rounds of long requests of equal output: what engines count as unconditional rates.
    ``InputError`` for a recording, which is walked instead.
    """
    if isinstance(config, TraceAcceptance):
        raise InputError(f"{config.path}: a recording has no rates of its own; fit a process to it")
    return _model(config, _SURVEY_SEED, depth).survival(depth)


def _model(config: AcceptanceConfig, seed: int, max_depth: int) -> _Model:
    if isinstance(config, MeanLengthAcceptance):
        return _by_depth(np.full(max_depth, config.alpha * config.scale))
    if isinstance(config, IidAcceptance):
        return _by_depth(config.alpha * config.decays(max_depth))
    if isinstance(config, PerPositionAcceptance):
        return _by_depth(config.rates(max_depth) * config.scale)
    if isinstance(config, BetaAcceptance):
        return _beta(config, seed, max_depth)
    if isinstance(config, MarkovAcceptance):
        return _markov(config, seed, max_depth)
    assert isinstance(config, LatentAcceptance)
    return _latent(config, seed, max_depth)


def _by_depth(rates: Floats) -> _Model:
    return _Model(rates, certain, lambda: rates, lambda depth: np.cumprod(rates[:depth], dtype=np.float64))


def _beta(config: BetaAcceptance, seed: int, max_depth: int) -> _Model:
    """Mix rates by Beta(a, b).

    Seen from its runs alone, a rate per round is Polya's urn: c_j = (a + j) / (a + b + j), j from 0.
    """
    a, b = config.shape
    decays = config.decays(max_depth)
    urn = decays * (a + np.arange(max_depth)) / (a + b + np.arange(max_depth))
    if config.per == "round":
        return _by_depth(urn)
    rates = betaincinv(a, b, _QUANTILES)

    def survival(depth: int) -> Floats:
        """Equal outputs spend rounds in inverse proportion to their tokens per round."""
        each = np.cumprod(rates[:, None] * decays[:depth], axis=1)
        rounds = 1 / (1 + each.sum(axis=1))
        return np.asarray(rounds @ each / rounds.sum())

    return _Model(decays, _RequestRate(seed, a, b), lambda: urn, survival)


def _markov(config: MarkovAcceptance, seed: int, max_depth: int) -> _Model:
    chain = Markov(seed, config.good, config.bad, config.leave_good, config.leave_bad)
    decays, share = config.decays(max_depth), good_share(config.leave_good, config.leave_bad)

    def base() -> Floats:
        """Acceptance by depth, given the drafts before it, from the stationary start."""
        start = np.array([share, 1 - share])
        survival = survival_from(start, chain.rates, chain.transition, decays)
        before = np.concatenate([[1.0], survival[:-1]])
        return np.asarray(np.divide(survival, before, out=np.zeros(max_depth), where=before > 0))

    return _Model(
        decays,
        chain,
        base,
        lambda depth: survival_in_walks(chain.rates, chain.transition, decays[:depth]),
    )


@dataclass(frozen=True)
class _RequestRate:
    """One Beta(a, b) rate per request."""

    seed: int
    a: float
    b: float

    def __call__(self, spans: Spans, /) -> Floats:
        u = uniforms_of(self.seed, "acceptance/request", spans.requests.tolist(), np.ones_like(spans.counts))
        return spans.spread(np.asarray(betaincinv(self.a, self.b, u)))


def _latent(config: LatentAcceptance, seed: int, max_depth: int) -> _Model:
    centre = centre_for_mean(config.mean, config.spread)

    def chance(seed: int) -> Latent:
        return Latent(seed, centre, config.spread, config.correlation, config.request_share)

    decays = config.decays(max_depth)
    sample = _Sample(chance(_SURVEY_SEED), decays)
    return _Model(
        decays,
        chance(seed),
        lambda: sample.survey.conditional_rates(max_depth),
        sample.survival,
    )


@dataclass(frozen=True)
class _Sample:
    """Monte Carlo over 2,048 requests of 128 tokens, drawn when first needed and always the same.

    The standard error of tokens per round at depth 7 is 0.5 to 1.3 % for spreads of 0.5 to 3 when
    half the variance lies between requests; ``Survey.tokens_per_round`` gives it with the mean.
    """

    chance: Chance
    by_depth: Floats

    @cached_property
    def survey(self) -> Survey:
        """Paths of the sample."""
        siblings = Siblings(None, lambda: self.by_depth)
        process = DrawnProcess(_SURVEY_SEED, self.by_depth, self.chance, None, None, float, siblings)
        return Survey([process.path(i, 1, _SURVEY_TOKENS).run for i in range(_SURVEY_REQUESTS)])

    def survival(self, depth: int) -> Floats:
        """Share of rounds that accept at least 1, 2, ... of ``depth`` drafts."""
        return self.survey.survival(depth)


def _trace(config: TraceAcceptance, seed: int, max_depth: int, path: FilePath) -> TraceProcess:
    rows = read_trace(path, config.span_key)
    depths = [row.depth or config.recorded_depth or MAX_DEPTH for row in rows]
    if max_depth > min(depths):
        raise InputError(
            f"{path}: recorded at depth {min(depths)}, which says nothing about depth {max_depth}; "
            "lower the depth or record deeper"
        )
    base = cache(lambda: conditional_rates(rows, max_depth))
    claims = make_claims(config.confidence, seed, base)
    mean_tokens = cache(lambda depth: tokens_per_round(rows, depth, config.scale))
    in_order, siblings = config.assign == "in_order", Siblings(config.sibling, base)
    return TraceProcess(
        seed, max_depth, rows, in_order, config.decay, claims, mean_tokens, siblings, config.scale
    )
