"""Processes that may explain what was seen, simplest first, and how each is fitted.

A candidate is a family of configurations over a few free numbers: logits and logarithms, so that
every step of a search is a valid process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import log
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares, minimize
from scipy.special import betaln, expit, logit

from sim.acceptance.build import expected_survival
from sim.acceptance.config import (
    AcceptanceConfig,
    BetaAcceptance,
    Decay,
    IidAcceptance,
    LatentAcceptance,
    MarkovAcceptance,
    MeanLengthAcceptance,
    PerPositionAcceptance,
)
from sim.acceptance.fit.evidence import Counted, Request
from sim.acceptance.fit.sequences import FINE, Rows, chains_of, log_likelihood, survival_in_walks_of

Floats = NDArray[np.float64]
Family = Callable[[Floats], AcceptanceConfig]

_RIDGE = 1e-4  # pull to the start: settles what few numbers leave open, and is lost in any data


class Free(NamedTuple):
    """One free number: where a search sets out, and where it turns back."""

    start: float
    least: float
    most: float


@dataclass(frozen=True)
class Candidate:
    """A family of processes over free numbers."""

    name: str
    free: tuple[Free, ...]
    family: Family
    step: float = 1.5e-8
    """Relative step of numeric derivatives, where a whole number hides small ones."""

    @property
    def parameters(self) -> int:
        """How many numbers are free."""
        return len(self.free)

    @property
    def start(self) -> Floats:
        """Where a search sets out."""
        return np.array([each.start for each in self.free])

    @property
    def bounds(self) -> list[tuple[float, float]]:
        """Where it turns back."""
        return [(each.least, each.most) for each in self.free]


def _decay(theta: Floats, at: int) -> float:
    return float(expit(theta[at])) if len(theta) > at else 1.0


def _iid(theta: Floats) -> AcceptanceConfig:
    return IidAcceptance(process="iid", alpha=float(expit(theta[0])), depth_decay=_decay(theta, 1))


def _beta(per: str, theta: Floats) -> AcceptanceConfig:
    mean, size = float(expit(theta[0])), float(np.exp(theta[1]))
    return BetaAcceptance.model_validate(
        {"process": "beta", "mean": mean, "concentration": size, "per": per, "depth_decay": _decay(theta, 2)}
    )


def _markov(theta: Floats) -> AcceptanceConfig:
    good, ratio, leave_good, leave_bad = expit(theta[:4]).tolist()
    return MarkovAcceptance(
        process="markov",
        good=good,
        bad=good * ratio,
        leave_good=leave_good,
        leave_bad=leave_bad,
        depth_decay=_decay(theta, 4),
    )


def _latent(theta: Floats) -> AcceptanceConfig:
    """Free are the deviations of the log odds between and within requests, not their sum and share."""
    between, within = np.exp(theta[1:3])
    spread = float(np.hypot(between, within))
    return LatentAcceptance(
        process="latent",
        mean=float(expit(theta[0])),
        spread=spread,
        correlation=float(expit(theta[3])),
        request_share=float((between / spread) ** 2),
        depth_decay=_decay(theta, 4),
    )


def _fading(theta: Floats) -> AcceptanceConfig:
    start, half_life = np.exp(theta[1:3]).tolist()
    decay = Decay(from_tokens=round(start), half_life_tokens=half_life)
    return IidAcceptance(process="iid", alpha=float(expit(theta[0])), decay=decay)


# Logits start at middling published drafters (0.67; a fall of 0.95 per position), logarithms where named.
_RATE, _DECAY = Free(0.7, -6, 6), Free(3.0, -2, 9)
_SIZE = Free(2.0, -3, 9)  # a Beta law's a + b
_SWITCHING = (Free(1.5, -6, 6), Free(-0.5, -6, 6), Free(-2.5, -7, 4), Free(-2.0, -7, 4))
_WANDERING = (_RATE, Free(-1.0, -4, 2), Free(-0.5, -4, 2), Free(2.0, -4, 6))
_CONTEXT = (Free(log(4000), 0, 14), Free(log(8000), 4, 16))

IID = (Candidate("iid", (_RATE,), _iid), Candidate("iid, depth_decay", (_RATE, _DECAY), _iid))
FADING = Candidate("iid, decay with context", (_RATE, *_CONTEXT), _fading, step=0.003)
BETA = (
    Candidate("beta per round", (_RATE, _SIZE), partial(_beta, "round")),
    Candidate("beta per round, depth_decay", (_RATE, _SIZE, _DECAY), partial(_beta, "round")),
)
BETA_PER_REQUEST = Candidate("beta per request", (_RATE, _SIZE), partial(_beta, "request"))
MARKOV = (
    Candidate("markov", _SWITCHING, _markov),
    Candidate("markov, depth_decay", (*_SWITCHING, _DECAY), _markov),
)
LATENT = (
    Candidate("latent", _WANDERING, _latent),
    Candidate("latent, depth_decay", (*_WANDERING, _DECAY), _latent),
)


# -- fits ------------------------------------------------------------------------------------------


def fit_counts(
    candidate: Candidate, groups: Sequence[Counted], positions: int | None = None
) -> AcceptanceConfig:
    """The member whose rounds accept 1, 2, ... drafts as often as those counted; least squares.

    ``positions``: look at the first ones only. A group that has no rates by position counts by its
    relative error in tokens per round.
    """
    start = candidate.start
    share = np.sqrt([group.weight for group in groups])
    share /= share.max()

    def residuals(theta: Floats) -> Floats:
        config = candidate.family(theta)
        missed = [s * _missed(config, group, positions) for s, group in zip(share, groups, strict=True)]
        return np.concatenate([*missed, _RIDGE * (theta - start)])

    least, most = np.array(candidate.bounds).T
    found = least_squares(
        residuals,
        start,
        bounds=(least, most),
        diff_step=np.array([candidate.step]),
        ftol=1e-6,
        xtol=1e-6,
        max_nfev=60,  # what more steps gain is lost in the noise of any data
    )
    return candidate.family(found.x)


def _missed(config: AcceptanceConfig, group: Counted, positions: int | None) -> Floats:
    survival = survival_at(config, group.depth, group.context_tokens)
    if not group.survival:
        return np.array([(1 + survival.sum()) / group.tokens_per_round - 1])
    return np.asarray((survival - np.array(group.survival))[:positions])


def survival_at(config: AcceptanceConfig, depth: int, context_tokens: float | None) -> Floats:
    """Share of rounds that accept at least 1, 2, ... drafts, at a context if one is given."""
    survival = expected_survival(config, depth)
    if config.decay is None or context_tokens is None:
        return survival
    beyond = max(0.0, context_tokens - config.decay.from_tokens)
    return survival * 2 ** (-np.arange(1, depth + 1) * beyond / config.decay.half_life_tokens)


def fit_requests(requests: Sequence[Request]) -> AcceptanceConfig:
    """The Beta law of request rates that makes these requests likeliest.

    A request that accepted s drafts and rejected f of those tested has likelihood
    B(a + s, b + f) / B(a, b), whatever the order.
    """
    pairs = np.array([_tests(request) for request in requests], dtype=np.float64)

    def loss(theta: Floats) -> float:
        mean, size = float(expit(theta[0])), float(np.exp(theta[1]))
        a, b = mean * size, (1 - mean) * size
        return -float((betaln(a + pairs[:, 0], b + pairs[:, 1]) - betaln(a, b)).sum()) / len(pairs)

    return _likeliest(BETA_PER_REQUEST, loss)


def _tests(request: Request) -> tuple[float, float]:
    """Drafts accepted and drafts rejected among those tested.

    Sums alone do not say how many rounds ended without a rejection: as many as an iid rate of the
    same mean would leave.
    """
    if request.steps:
        return request.accepted, sum(accepted < drafted for drafted, accepted in request.steps)
    mean = MeanLengthAcceptance(
        process="mean_length", acceptance_length=request.tokens_per_round, depth=request.depth
    )
    return request.accepted, request.rounds * (1 - mean.alpha**request.depth)


def levelled(config: AcceptanceConfig, groups: Sequence[Counted]) -> AcceptanceConfig:
    """Move all log odds alike until the process emits as many tokens per round as were counted.

    Likelihood counts requests; a server's throughput counts tokens, and long outputs may be easier
    than short ones, which no process here knows.
    """

    def excess(shift: float) -> float:
        moved = _shifted(config, shift)
        ratio = [(1 + _walked(moved, group.depth).sum()) / group.tokens_per_round for group in groups]
        return float(np.average(ratio, weights=[group.weight for group in groups])) - 1

    low, high = 0.0, 0.1
    off_low, off_high = excess(low), excess(high)
    for _ in range(3):  # a secant: tokens per round are nearly straight in the log odds
        if abs(off_high - off_low) < 1e-9 or abs(off_high) < 1e-4:
            break
        step = off_high * (high - low) / (off_high - off_low)
        low, off_low, high = high, off_high, high - float(np.clip(step, -1, 1))
        off_high = excess(high)
    return _shifted(config, high)


def _walked(config: AcceptanceConfig, depth: int) -> Floats:
    if isinstance(config, LatentAcceptance):
        return survival_in_walks_of(chains_of(config, depth, FINE))
    return expected_survival(config, depth)


def _shifted(config: AcceptanceConfig, shift: float) -> AcceptanceConfig:
    if isinstance(config, MarkovAcceptance):
        return config.model_copy(update={key: _odds(getattr(config, key), shift) for key in ("good", "bad")})
    assert isinstance(config, LatentAcceptance | BetaAcceptance)
    assert config.mean is not None
    return config.model_copy(update={"mean": _odds(config.mean, shift)})


def _odds(rate: float, shift: float) -> float:
    return float(expit(logit(rate) + shift))


def fit_rounds(candidate: Candidate, seen: Rows) -> AcceptanceConfig:
    """The member that makes rounds in their order likeliest (``markov`` and ``latent`` only)."""
    tests = int((seen.codes > 0).sum())

    def loss(theta: Floats) -> float:
        config = candidate.family(theta)
        assert isinstance(config, MarkovAcceptance | LatentAcceptance)
        return -log_likelihood(seen, chains_of(config, seen.depth)) / tests

    return _likeliest(candidate, loss)


def _likeliest(candidate: Candidate, loss: Callable[[Floats], float]) -> AcceptanceConfig:
    """The member of least loss per test."""
    found = minimize(
        loss,
        candidate.start,
        bounds=candidate.bounds,
        method="L-BFGS-B",
        options={"ftol": 3e-6, "gtol": 1e-4},
    )
    return candidate.family(np.asarray(found.x))


def per_position(group: Counted, positions: int | None = None) -> AcceptanceConfig:
    """The counted rates themselves; drafts behind the first ``positions`` go on as the last of them."""
    return PerPositionAcceptance(
        process="per_position",
        unconditional=tuple(np.minimum.accumulate(group.survival[:positions]).tolist()),
    )
