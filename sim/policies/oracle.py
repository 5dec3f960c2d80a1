"""``oracle``: a clairvoyant bound that no real policy can have.

It sees how many drafts of each sequence would be accepted and chooses, for the next round alone,
the per-sequence depths with the most output tokens per unit of round time (draft and verify). No
useless draft is ever verified, so every verified token is worth exactly one output token and only
two numbers matter: how many tokens in all, and how deep the deepest sequence goes. Granularity:
per sequence, every step. It is a bound on tokens per unit of step time in one state (design law),
not on every metric of a whole run.
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
        return best_depths(batch, np.clip(useful, 0, self.max_depth))


def best_depths(batch: Batch, useful: Int64) -> Int64:
    """Depths d <= useful with the largest (n + sum d) / time, over every limit and token total.

    For each depth limit L the first ``total`` useful drafts, in order of position and then of
    sequence, are verified; ``useful`` has shape (sequences,).
    """
    n, context = len(useful), float(batch.context_tokens.sum())
    limits = np.arange(int(useful.max(initial=0)) + 1)
    draft_ns = batch.cost.draft_round_ns(n, limits, context)
    per_limit = np.minimum(useful[:, None], limits).sum(axis=0)
    totals = np.arange(int(per_limit[-1]) + 1)
    verify_ns = batch.cost.target_ns(n + totals, n, context)
    rate = (n + totals) / (verify_ns + draft_ns[np.searchsorted(per_limit, totals)])
    total = int(rate.argmax())
    return first_drafts(useful, total)


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
