"""``dsde``: per-sequence depths from how much, and how steadily, drafter and target diverge.

Rule of DSDE (arXiv 2509.01083; formulas as in the authors' scheduler for vLLM, class ``KLScheduler``).
After a verification, with KL the divergence of target from drafter at each verified draft,

    k = ceil(k_min' + (k_max' - k_min') (1 - WVIR * SF)), or k_min' where WVIR * SF > 1
    SF = exp(2 mean(KL of the last round) / temperature) - 1
    WVIR = variance(newest third of the history) / variance(history), weights 0.9 per token of age

(20 where the long variance is below 1e-6). The history is the request's last 30 tokens. They are its
warm-up, too: until then k doubles whenever all k drafts are accepted; then ``k_max'`` is the most
accepted in one round times 1 + 0.5 mean(KL) / max(KL), rounded and cut to ``k_min``..``k_max``, and
``k_min'`` is a tenth of it, rounded up, at least ``k_min``. Every depth is then capped at the batch's
mean, rounded up, since the drafter runs as often as the deepest sequence asks.

**Granularity**: per sequence. **Inputs**: divergences of verified drafts, accepted drafts.

Departures: divergences are not simulated. **A stand-in is made of the drafter's claims c** of the
drafts that were verified: KL = -ln(1 - (1 - c)^2), the bound of Bretagnolle and Huber taken as an
equality, with 1 - c as the total variation. It carries the claims' noise and says nothing about the
rule's merit on real divergences. Outcomes reach a decision one step late, as the engine drafts before
it reports; rounds without drafts are skipped. The paper's formulas differ a little from the code
(no factor 0.5, age weight 0.85; from another's account of it); start depth (here ``k_min``), ``k_min``
= 2 and ``k_max`` = 10, the deepest fixed length that it compares with, are not from the code.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal, Self

import numpy as np
from pydantic import Field, model_validator

from sim.policies.base import Batch, Claims, Depths, Int64, Outcome, PolicyDefaults
from sim.policies.config import Bounds, PolicyConfig
from sim.policies.memory import Float, PerRequest

_AGE_WEIGHT = 0.9
_STEADY = 1e-6
_STEADY_RATIO = 20.0
_LEAST_OVERLAP = 1e-8
_MOST_EXPONENT = 700.0


class Dsde(PolicyDefaults):
    """Depth of every sequence from the stability of its divergences."""

    wants_confidence = True
    wants_outcomes = True

    def __init__(self, k_min: int, k_max: int, warm_up_tokens: int, temperature: float, cap: bool) -> None:
        self.k_min, self.k_max, self.cap = k_min, k_max, cap
        self.warm_up_tokens, self.temperature = warm_up_tokens, temperature or 1.0
        self.depth = PerRequest(k_min)
        self.history = PerRequest(0.0, warm_up_tokens)
        self.seen = PerRequest(0)
        self.most_accepted = PerRequest(0)
        self.bounds = PerRequest(0.0, 2)
        self.verifying = PerRequest(0.0, max(k_max, 1))
        self._drafted: tuple[Int64, Float] | None = None

    def draft_depths(self, batch: Batch) -> Depths:
        """What the last verification led to; the shortest depth for new requests."""
        return self.depth.of(batch.request).astype(np.int64)

    def verify_depths(self, batch: Batch, depths: Depths, confidence: Claims) -> Depths:
        """All; their divergences will be known when they have been verified."""
        if self.k_max:
            self._drafted = batch.request.copy(), divergence(confidence[:, : self.k_max])
        return depths

    def observe(self, outcome: Outcome) -> None:
        """Learn from the drafts just verified; then those made in this step are next."""
        tried = outcome.drafted > 0
        if tried.all():
            self._learn(outcome.request, outcome.drafted, outcome.accepted)
        else:
            self._learn(outcome.request[tried], outcome.drafted[tried], outcome.accepted[tried])
        if self._drafted is not None:
            self.verifying.put(*self._drafted)
            self._drafted = None

    def _learn(self, request: Int64, drafted: Int64, accepted: Int64) -> None:
        new = self.verifying.of(request) * (np.arange(max(self.k_max, 1)) < drafted[:, None])
        seen, history = self.seen.of(request), self.history.of(request)
        warm = seen + drafted >= self.warm_up_tokens
        self.seen.put(request, seen + drafted)
        grown = pushed(history, new, drafted)
        self.history.put(request, grown)
        if not warm.all():
            self._warm_up(request[~warm], accepted[~warm])
        fresh = warm & (seen < self.warm_up_tokens)
        if fresh.any():
            self._calibrate(request[fresh], history[fresh], seen[fresh])
        last = new.sum(axis=1) / drafted
        if warm.all():
            self._choose(request, grown, last)
        else:
            self._choose(request[warm], grown[warm], last[warm])

    def _warm_up(self, request: Int64, accepted: Int64) -> None:
        """Double a depth that was accepted whole."""
        depth = self.depth.of(request)
        self.depth.put(request, np.where(accepted >= depth, np.minimum(2 * depth, self.k_max), depth))
        self.most_accepted.put(request, np.maximum(self.most_accepted.of(request), accepted))

    def _calibrate(self, request: Int64, history: Float, seen: Float) -> None:
        """Bounds from the warm-up: its ``seen`` tokens stand in ``history``, whose rest is zero."""
        most = history.max(axis=1)
        spread = history.sum(axis=1) / np.maximum(seen, 1) / np.where(most > 0, most, 1)
        high = np.rint(self.most_accepted.of(request) * (1 + 0.5 * spread)).clip(self.k_min, self.k_max)
        low = np.minimum(high, np.maximum(self.k_min, np.ceil(high * 0.1)))
        unseen = seen == 0
        low, high = np.where(unseen, self.k_min, low), np.where(unseen, self.k_max, high)
        self.bounds.put(request, np.stack([low, high], axis=1))

    def _choose(self, request: Int64, history: Float, last: Float) -> None:
        if not len(request):
            return
        low, high = self.bounds.of(request).T
        scale = np.exp(np.minimum(2 * last / self.temperature, _MOST_EXPONENT)) - 1
        risk = variance_ratio(history) * scale
        depth = np.where(risk <= 1, np.ceil((high - low) * (1 - risk) + low), low)
        if self.cap:
            depth = np.minimum(depth, np.ceil(depth.mean()))
        self.depth.put(request, depth)


def divergence(claims: Claims) -> Float:
    """Stand-in for KL in nats: the least that fits the claimed acceptance (Bretagnolle, Huber 1979)."""
    apart = 1 - claims.astype(np.float64)
    return -np.log(np.maximum(1 - apart**2, _LEAST_OVERLAP))


def pushed(history: Float, new: Float, count: Int64) -> Float:
    """``history`` (rows, tokens) after the first ``count`` values of each row of ``new``, oldest out."""
    tokens = history.shape[1]
    both = np.concatenate([history, new], axis=1)
    return np.take_along_axis(both, np.arange(tokens) + count[:, None], axis=1)


def variance_ratio(history: Float) -> Float:
    """WVIR of each row: weighted variance of its newest third over that of all of it."""
    short = history[:, -max(1, history.shape[1] // 3) :]
    long = _weighted_variance(history)
    ratio = _weighted_variance(short) / np.where(long < _STEADY, 1, long)
    return np.where(long < _STEADY, _STEADY_RATIO, ratio)


def _weighted_variance(values: Float) -> Float:
    weight = _weights(values.shape[1])
    mean = values @ weight
    variance: Float = (values - mean[:, None]) ** 2 @ weight
    return variance


@lru_cache
def _weights(tokens: int) -> Float:
    """Weights of so many values by age, the newest last; they add up to 1."""
    weight = _AGE_WEIGHT ** np.arange(tokens - 1, -1, -1)
    return np.asarray(weight / weight.sum())


class DsdeConfig(PolicyConfig):
    """Per-sequence depth from the stability of divergences (DSDE; divergence from claims)."""

    policy: Literal["dsde"]
    k_min: int = Field(default=2, ge=1, le=64, description="shallowest depth, and the first of a request")
    k_max: int = Field(default=10, ge=1, le=64, description="deepest depth")
    warm_up_tokens: int = Field(default=30, ge=2, le=1024, description="verified drafts before calibration")
    temperature: float = Field(default=1.0, ge=0, description="sampling temperature; 0 counts as 1")
    cap: bool = Field(default=True, description="cap depths at the batch's mean, rounded up")

    @model_validator(mode="after")
    def _bounds_in_order(self) -> Self:
        if self.k_min > self.k_max:
            raise ValueError(f"k_min {self.k_min} is above k_max {self.k_max}; it may be at most that")
        return self

    def build(self, bounds: Bounds) -> Dsde:
        """The policy, its depths cut to what the engine allows."""
        k_max = min(self.k_max, bounds.max_depth)
        return Dsde(min(self.k_min, k_max), k_max, self.warm_up_tokens, self.temperature, self.cap)

    @property
    def depth(self) -> int:
        """The deepest depth."""
        return self.k_max
