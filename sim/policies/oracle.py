"""``oracle``: a clairvoyant bound that no real policy can have.

It sees how many drafts of each sequence would be accepted and chooses, for the next round alone,
the per-sequence depths with the most output tokens per unit of round time (draft and verify).
With a depth limit L and m drafts in all, a round cannot emit more than n + min(m, A(L)) tokens,
A(L) being the drafts up to L that would survive; the best (L, m) is found by trying all, so
the bound holds for step costs of any shape (where a larger step is cheaper, useless drafts pad
it). Granularity: per sequence, every step. It bounds tokens per unit of step time in one state
(design law), not every metric of a whole run.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from sim.errors import SimulationError
from sim.policies.base import Batch, Depths, Int64, PolicyDefaults
from sim.policies.config import Bounds, PolicyConfig


class Oracle(PolicyDefaults):
    """The best depths of the next round, given what would be accepted."""

    clairvoyant = True

    def __init__(self, max_depth: int) -> None:
        self.max_depth = max_depth

    def draft_depths(self, batch: Batch) -> Depths:
        """Per-sequence depths: at most the tokens that will survive."""
        if batch.run is None:
            raise SimulationError("the oracle was asked without run lengths")
        if batch.sequences == 0:
            return 0
        useful = np.minimum(batch.run, batch.remaining_tokens - 1)
        return best_depths(batch, np.clip(useful, 0, self.max_depth), self.max_depth)


def best_depths(batch: Batch, useful: Int64, max_depth: int) -> Int64:
    """Depths with the largest (n + accepted) / time over every depth limit and draft total.

    ``useful`` has shape (sequences,): drafts of each sequence that would be accepted and wanted.
    """
    n, context = len(useful), float(batch.context_tokens.sum())
    limits, totals = np.arange(max_depth + 1), np.arange(n * max_depth + 1)
    survive = np.minimum(useful[:, None], limits).sum(axis=0)
    time = batch.cost.target_ns(n + totals, n, context)
    time = time + batch.cost.draft_round_ns(n, limits, context)[:, None]
    rate = (n + np.minimum(totals, survive[:, None])) / time
    rate[totals > n * limits[:, None]] = 0.0
    limit, total = np.unravel_index(int(rate.argmax()), rate.shape)
    depths = first_drafts(np.minimum(useful, limit), min(int(total), int(survive[limit])))
    return depths + first_drafts(limit - depths, int(total) - int(depths.sum()))


def first_drafts(useful: Int64, total: int) -> Int64:
    """Depths that spend ``total`` drafts level by level, so the deepest is as shallow as can be."""
    depths = np.zeros_like(useful)
    left, level = total, 0
    while left > 0:
        ready = np.flatnonzero(useful > level)[:left]
        depths[ready] += 1
        left -= len(ready)
        level += 1
    return depths


class OracleConfig(PolicyConfig):
    """Clairvoyant per-sequence depth: the most tokens per unit of round time (a bound)."""

    policy: Literal["oracle"]
    k_max: int = Field(default=7, ge=1, le=64, description="deepest depth considered")

    def build(self, bounds: Bounds) -> Oracle:
        """The policy, its depth cut to what the engine allows."""
        return Oracle(min(self.k_max, bounds.max_depth))

    @property
    def depth(self) -> int:
        """The deepest depth considered."""
        return self.k_max
