"""A policy of your own that gives every sequence its own depth.

It knows the acceptance rate of each request class, as an engine may know a tenant or a task. Draft
``j`` of a sequence survives with probability ``rate ** j``. For every limit on depth, the likeliest
drafts are taken one by one, and the set with the most expected tokens per unit of step time is
used. That is the marginal rule: a draft is worth its slot while its survival exceeds what the slot
costs in tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sim.policies.base import Batch, Depths, PolicyDefaults

Float = NDArray[np.float64]


class KnownRates(PolicyDefaults):
    """Depths by survival; ``rates`` has one acceptance rate per class of the scenario, in order."""

    def __init__(self, rates: Sequence[float]) -> None:
        self.rates = np.asarray(rates, float)

    def draft_depths(self, batch: Batch) -> Depths:
        """One depth per sequence."""
        if batch.sequences == 0 or batch.max_depth == 0:
            return 0
        survival: Float = self.rates[batch.class_id][:, None] ** np.arange(1.0, batch.max_depth + 1)
        return best_depths(batch, survival)


def best_depths(batch: Batch, survival: Float) -> NDArray[np.int64]:
    """Depths with the most expected tokens per time, over every depth limit and number of drafts."""
    n, context = batch.sequences, float(batch.context_tokens.sum())
    best_rate, best = 0.0, np.zeros(n, dtype=np.int64)
    for limit in range(survival.shape[1] + 1):
        ranked = np.sort(survival[:, :limit], axis=None)[::-1]
        drafts = np.arange(len(ranked) + 1)
        time = batch.cost.target_ns(n + drafts, n, context)
        time = time + batch.cost.drafting_ns(n, drafts, limit, context)
        rate = (n + np.concatenate([[0.0], np.cumsum(ranked)])) / time
        take = int(rate.argmax())
        if rate[take] > best_rate:
            best_rate, best = float(rate[take]), _likeliest(survival[:, :limit], take)
    return best


def _likeliest(survival: Float, count: int) -> NDArray[np.int64]:
    """How many of the ``count`` likeliest drafts each sequence has; ties go to shallow drafts."""
    order = np.argsort(-survival.T, axis=None, kind="stable")[:count]
    return np.bincount(order % len(survival), minlength=len(survival))
