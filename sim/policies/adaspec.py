"""``adaspec``: the whole batch drafts one level deeper while predicted goodput rises; tails are pruned.

Rule of AdaSpec / SpecServe (arXiv 2503.05096, SoCC 2025; code cerebellumking/AdaSpec at f3f2f48,
vllm/spec_decode/draft_model_runner.py). Goodput after s levels is (n + sum of the survivals of all
drafts) / T(s), T being the profiled round: s drafter passes and the target pass. Before each level it
is predicted, every unseen draft having the mean confidence so far (0.6 at first); the batch drafts
nothing unless the first level is predicted to gain, and stops where the next is predicted to lose.
Once drafted, the level's confidences are known: if goodput fell, it is the last, but kept; if not, it
enters the running mean. Then the least likely tails are pruned until the target pass fits the next
smaller captured graph, if goodput is not lower for it. With ``keep_tpot`` no level is drafted whose
round would take longer than the tightest TPOT limit in the batch.

**Granularity**: depth for the whole batch, pruning per token. **Inputs**: confidences, cost tables,
contexts; TPOT limits with ``keep_tpot``.

Departures: the authors' pruning looks at each sequence's deepest survival only, and so empties whole
sequences, the least likely first; ours prunes the least likely drafts of the batch, which is what the
paper is said to do (secondary source). Their TPOT check is commented out in the code. Sequences that
may not draft as deep as others (context limit, look-up without a match) do not count where they do not
draft, while the round is priced as if they did. As in the source, the mean is of claims and not of
outcomes, so claims that are too bold or too timid are never corrected.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from pydantic import Field

from sim.cost.step_cost import StepCost
from sim.policies.base import Batch, Claims, Depths, PolicyDefaults
from sim.policies.budget import spend, survival
from sim.policies.config import Bounds, PolicyConfig
from sim.policies.times import Float, RoundTimes


class _Level(NamedTuple):
    """One level of drafts, summed over the sequences that draft it."""

    drafts: int
    confidence: float
    survival: float
    reaching: float
    """Survival just before the level."""


class CapturedSizes:
    """Captured graph sizes of the target pass."""

    def __init__(self) -> None:
        self._cost: StepCost | None = None
        self._sizes = np.zeros(0, dtype=np.int64)

    def below(self, cost: StepCost, tokens: int) -> int:
        """Largest captured size below ``tokens``; 0 if there is none."""
        if cost is not self._cost:
            self._cost, self._sizes = cost, np.unique(cost.padded_array[: cost.largest_graph + 1])
        at = int(np.searchsorted(self._sizes, tokens))
        return int(self._sizes[at - 1]) if at else 0


class AdaSpec(PolicyDefaults):
    """Drafts level by level while goodput rises; prunes to a captured graph."""

    wants_confidence = True

    def __init__(self, k_max: int, start: float, prune: bool, keep_tpot: bool) -> None:
        self.k_max, self.mean, self.prune = k_max, start, prune
        self.wants_progress = keep_tpot
        self.times = RoundTimes(k_max)
        self.graphs = CapturedSizes()
        self._drafts, self._confidence = 0, 0.0

    def draft_depths(self, batch: Batch) -> Depths:
        """As deep as allowed, if the first level is predicted to gain; else nothing."""
        n = batch.sequences
        if n == 0 or self.k_max == 0:
            return 0
        time = self._times(batch)
        return self.k_max if n * (1 + self.mean) / time[1] > n / time[0] else 0

    def stop_depths(self, batch: Batch, depths: Depths, confidence: Claims) -> Depths:
        """The level after which goodput falls or is predicted to."""
        levels = self._levels(batch.sequences, depths, confidence)
        if not levels:
            return depths
        tokens, time = float(batch.sequences), self._times(batch)
        goodput = tokens / time[0]
        for depth, level in enumerate(levels, start=1):
            if depth > 1 and (tokens + level.reaching * self.mean) / time[depth] < goodput:
                return np.minimum(depths, depth - 1)
            tokens += level.survival
            fell = tokens / time[depth] < goodput
            goodput = tokens / time[depth]
            if fell:
                return np.minimum(depths, depth)
            self._remember(level)
        return depths

    def _levels(self, sequences: int, depths: Depths, confidence: Claims) -> list[_Level]:
        """The levels that some sequence may draft."""
        deepest = int(np.max(depths, initial=0)) if sequences else 0
        drafts = np.arange(deepest) < np.reshape(depths, (-1, 1))
        claims = confidence[:, :deepest] * drafts
        survive = survival(claims)
        reaching = np.ones_like(survive)
        reaching[:, 1:] = survive[:, :-1]
        sums = (claims, survive, reaching * drafts)
        counts = np.broadcast_to(drafts, claims.shape).sum(axis=0)
        columns = [counts.tolist(), *(each.sum(axis=0, dtype=np.float64).tolist() for each in sums)]
        return [_Level(*row) for row in zip(*columns, strict=True)]

    def _remember(self, level: _Level) -> None:
        self._drafts += level.drafts
        self._confidence += level.confidence
        self.mean = self._confidence / self._drafts

    def _times(self, batch: Batch) -> Float:
        """Round times by depth; never where a TPOT limit would be missed."""
        time = self.times.uniform(batch)
        if batch.tpot_limit_ns is not None:
            limits = np.where(batch.tpot_limit_ns > 0, batch.tpot_limit_ns, np.inf)
            time[1:][time[1:] > limits.min(initial=np.inf)] = np.inf
        return time

    def verify_depths(self, batch: Batch, depths: Depths, confidence: Claims) -> Depths:
        """All, or the likeliest that fit the next smaller captured graph."""
        depth = int(np.max(depths, initial=0)) if batch.sequences else 0
        if not self.prune or depth == 0:
            return depths
        n, drafts = batch.sequences, int(np.broadcast_to(depths, batch.sequences).sum())
        fitting = self.graphs.below(batch.cost, n + drafts) - n
        if fitting < 0:
            return depths
        survive = survival(confidence)
        kept = spend(survive, fitting)
        likely = survive * (np.arange(survive.shape[1]) < kept[:, None])
        time, target = self.times.uniform(batch)[depth], self.times.target(batch)
        pruned_time = time - target[n * depth] + target[fitting]
        pays = (n + likely.sum()) / pruned_time >= (n + survive.sum()) / time
        return kept if pays else depths


class AdaSpecConfig(PolicyConfig):
    """Draft while the batch's predicted goodput rises, prune to a captured graph (AdaSpec / SpecServe)."""

    policy: Literal["adaspec"]
    k_max: int = Field(default=8, ge=1, le=64, description="deepest depth")
    start: float = Field(default=0.6, ge=0, le=1, description="mean confidence assumed before any is seen")
    prune: bool = Field(default=True, description="prune to the next smaller captured graph if it pays")
    keep_tpot: bool = Field(default=False, description="no level whose round would exceed a TPOT limit")

    def build(self, bounds: Bounds) -> AdaSpec:
        """The policy, its depth cut to what the engine allows."""
        return AdaSpec(min(self.k_max, bounds.max_depth), self.start, self.prune, self.keep_tpot)

    @property
    def depth(self) -> int:
        """The deepest depth."""
        return self.k_max
