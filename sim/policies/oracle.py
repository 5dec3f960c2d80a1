"""``oracle``: a clairvoyant bound that no real policy can have.

It sees how many drafts of each sequence would be accepted and chooses, for the next round alone,
the per-sequence depths with the most output tokens per unit of round time: the target pass and the
drafter's passes, priced as the engine charges them. With a depth limit L and m drafts in all, a
round cannot emit more than n + min(m, A(L)) tokens, A(L) being the drafts up to L that would
survive; every (L, m) is tried, also with useless drafts where a larger step is cheaper. The bound
is exact for sequences of equal context and, where drafter passes shrink with the sequences that go
on (preset ``ideal``), for passes that are linear in them. Granularity: per sequence, every step.
It bounds tokens per unit of step time in one state, not every metric of a whole run.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from sim.cost.step_cost import StepCost
from sim.errors import SimulationError
from sim.policies.base import Batch, Depths, Int64, PolicyDefaults
from sim.policies.config import Bounds, PolicyConfig

Float = NDArray[np.float64]


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
    emitted = n + np.minimum(totals, survive[:, None])
    time = batch.cost.target_ns(n + totals, n, context) + drafting_ns(batch, useful, totals, emitted, survive)
    rate = emitted / time
    rate[totals > n * limits[:, None]] = 0.0
    limit, total = np.unravel_index(int(rate.argmax()), rate.shape)
    depths = first_drafts(np.minimum(useful, limit), min(int(total), int(survive[limit])))
    return depths + first_drafts(limit - depths, int(total) - int(depths.sum()))


def drafting_ns(batch: Batch, useful: Int64, totals: Int64, emitted: Int64, survive: Int64) -> Float:
    """Drafter time of every depth limit (rows, 0 upwards) and draft total (columns)."""
    cost, n, context = batch.cost, len(useful), float(batch.context_tokens.sum())
    further = cost.further_ns(n, np.arange(len(survive)), context)[:, None]
    if not cost.habits.uniform:
        shrinking = shrinking_ns(cost, useful, totals, context, len(survive) - 1)
        further = np.where(totals <= survive[:, None], shrinking, further)
    ns = cost.first_ns(totals, emitted, n, context) + further
    return np.where((totals > 0) | cost.habits.idle_pass, ns, 0.0)


def shrinking_ns(cost: StepCost, useful: Int64, totals: Int64, context: float, max_depth: int) -> Float:
    """Further passes that run for the sequences that go on, when drafts fill level by level."""
    levels = (useful[:, None] > np.arange(max_depth)).sum(axis=0)
    filled = np.clip(totals[:, None] - (np.cumsum(levels) - levels), 0, levels)[:, 1:]
    read = filled * context / len(useful)
    passes = np.where(filled > 0, cost.next.ns_array(filled, filled, filled, read, read), 0.0)
    return np.asarray(passes.sum(axis=1)) * cost.sequential


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
