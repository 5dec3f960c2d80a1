"""``adaserve``: drafts first for requests that would miss their TPOT limit, then for throughput.

Rule of AdaServe (arXiv 2501.12162, EuroSys 2026, sections 3 to 5, Algorithm 2): a round may verify a
fixed number of tokens, ``budget``. A request that has emitted o tokens in a time l needs
``A = (l + t) / limit - o`` more in a round of time t to keep its limit.

1. In falling order of A, each request gets its likeliest drafts until, with its own token, they are
   expected to give ``min(A, d + 1)``; at most ``n_max`` of them, and while the budget lasts.
2. What is left goes to the likeliest drafts of the whole batch.

The drafted depth is ``budget / n - 1`` for n requests, within ``k_min`` and ``k_max`` (equation 8 with
c1 = 0; 4 and 8 are the settings of the authors' artifact). Without limits only step 2 is left, which is
``tetris`` with a capacity that shrinks as requests come.

**Granularity**: per token; every step. **Inputs**: confidences, tokens and time of every request since
its first token, its TPOT limit, cost tables.

Lossless: the budget is fixed, and what a request gets in either step depends on no confidence behind
(the authors take a beam search's tokens, which are not drawn at all).

Departures: chains instead of trees, so w = 1. The authors' budget comes from profiling "balancing
throughput and latency" and is not stated; ours is the largest step whose target pass takes at most
``stretch`` times that of a single token, both profiled like ``dspark``'s SPS, unless ``budget`` is given
(2: where what the tokens add equals what every pass costs).
t is the time of a decode round with the budget spread evenly, at the batch's context; the round just
run, whose end the limit has not seen yet, is taken to last as long. The first token comes out of the
prompt and counts for neither l nor o, as in the usual TPOT. Their code limits n_max to 1.2 times an even
share and ignores drafts below 0.04 (known to us second hand): left out.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from sim.cost.step_cost import StepCost
from sim.policies.base import Batch, Claims, Depths, Int64, PolicyDefaults
from sim.policies.budget import Float, Profile, Survival, spend, survival
from sim.policies.config import Bounds, PolicyConfig
from sim.policies.times import RoundTimes


class AdaServe(PolicyDefaults):
    """A fixed budget of tokens per round, spent on limits first."""

    wants_confidence = True
    wants_progress = True

    def __init__(
        self,
        k_max: int,
        k_min: int,
        budget: int | None = None,
        stretch: float = 2.0,
        n_max: int | None = None,
        profile_context: int = 2048,
    ) -> None:
        self.k_max, self.k_min, self.stretch = k_max, k_min, stretch
        self.n_max = k_max if n_max is None else n_max
        self.times = RoundTimes(k_max)
        self.profile = Profile(k_max, profile_context)
        self._given = budget
        self._cost: StepCost | None = None
        self._tokens = 0

    def draft_depths(self, batch: Batch) -> Depths:
        """As deep as an even share of the budget, within bounds."""
        if batch.sequences == 0:
            return 0
        return min(max(self._even_share(batch), self.k_min), self.k_max)

    def verify_depths(self, batch: Batch, depths: Depths, confidence: Claims) -> Depths:
        """What the limits need, then the likeliest of the rest."""
        if batch.sequences == 0 or self.k_max == 0:
            return 0
        survive = survival(confidence[:, : self.k_max])
        required = self._required(batch)
        needed = self._drafts_for(np.minimum(required, np.add(depths, 1)), survive)
        left = self._budget(batch.cost) - batch.sequences
        granted = in_turn(needed, np.argsort(-required, kind="stable"), left)
        rest = np.where(np.arange(self.k_max) < granted[:, None], 0, survive)
        return granted + spend(rest, left - int(granted.sum()))

    def _required(self, batch: Batch) -> Float:
        """Tokens that each sequence has to emit in the coming round; 0 without a limit."""
        assert batch.output_tokens is not None
        assert batch.since_first_ns is not None
        assert batch.tpot_limit_ns is not None
        share = min(max(self._even_share(batch), 0), self.k_max)
        round_ns = self.times.uniform(batch)[share]
        ends_ns = batch.since_first_ns + np.where(batch.output_tokens > 1, 2, 1) * round_ns
        limit = np.maximum(batch.tpot_limit_ns, 1)
        return np.where(batch.tpot_limit_ns > 0, ends_ns / limit - (batch.output_tokens - 1), 0.0)

    def _drafts_for(self, tokens: Float, survive: Survival) -> Int64:
        """Drafts until ``tokens`` are expected, the sequence's own included; at most ``n_max``."""
        before = 1 + np.cumsum(survive, axis=1, dtype=np.float64) - survive
        wanted: Int64 = ((before < tokens[:, None]) & (survive > 0)).sum(axis=1)
        return np.minimum(wanted, self.n_max)

    def _even_share(self, batch: Batch) -> int:
        """Drafts per sequence if all got as many."""
        return self._budget(batch.cost) // batch.sequences - 1

    def _budget(self, cost: StepCost) -> int:
        """Tokens that a round may verify, own tokens included."""
        if self._given is not None:
            return self._given
        if cost is not self._cost:
            ns = self.profile.ns(cost)
            self._cost, self._tokens = cost, int(np.flatnonzero(ns <= self.stretch * ns[1])[-1])
        return self._tokens


def in_turn(needed: Int64, order: Int64, budget: int) -> Int64:
    """What each gets of ``needed`` when they are served in ``order`` while the budget lasts."""
    wanted = needed[order]
    granted = np.empty_like(needed)
    granted[order] = np.clip(budget - (wanted.cumsum() - wanted), 0, wanted)
    return granted


class AdaServeConfig(PolicyConfig):
    """Drafts first for requests behind their TPOT limit, then the likeliest (AdaServe)."""

    policy: Literal["adaserve"]
    k_max: int = Field(default=8, ge=1, le=64, description="deepest depth drafted")
    k_min: int = Field(default=4, ge=0, le=64, description="shallowest depth drafted, whatever the load")
    budget: int | None = Field(
        default=None, ge=1, description="tokens verified per round; default: from the cost tables"
    )
    stretch: float = Field(
        default=2.0, ge=1, description="target pass at the budget, against that of one token"
    )
    n_max: int | None = Field(
        default=None, ge=0, description="most drafts of one request for its limit; default: all"
    )
    profile_context: int = Field(
        default=2048, ge=0, description="KV tokens of a sequence when passes are profiled"
    )

    def build(self, bounds: Bounds) -> AdaServe:
        """The policy, its depths cut to what the engine allows."""
        k_max = min(self.k_max, bounds.max_depth)
        k_min = min(self.k_min, k_max)
        return AdaServe(k_max, k_min, self.budget, self.stretch, self.n_max, self.profile_context)

    @property
    def depth(self) -> int:
        """The deepest depth drafted."""
        return self.k_max
