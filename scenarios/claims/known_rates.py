"""A policy of your own that gives every sequence its own depth.

It knows the acceptance rates that occur, but not which request has which: Bayes' rule tells, from
the drafts accepted so far. A draft survives with probability ``S_j``, the mean of ``rate ** j``
under what is known of its sequence. For every limit on depth, the likeliest drafts are taken one
by one, and the set with the most expected tokens per unit of step time is used. That is the
marginal rule: a draft is worth its slot while ``S_j`` exceeds what the slot costs in tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sim.policies.base import Batch, Depths, Outcome, PolicyDefaults

Float = NDArray[np.float64]


class KnownRates(PolicyDefaults):
    """Depths by expected survival; ``rates`` are equally likely before the first outcome."""

    wants_outcomes = True

    def __init__(self, rates: Sequence[float]) -> None:
        self.rates = np.asarray(rates, float)
        self.log_likelihood: dict[int, Float] = {}

    def draft_depths(self, batch: Batch) -> Depths:
        """One depth per sequence."""
        if batch.sequences == 0 or batch.max_depth == 0:
            return 0
        return best_depths(batch, self.survival(batch.request.tolist(), batch.max_depth))

    def survival(self, requests: list[int], max_depth: int) -> Float:
        """Expected chance that draft 1..max_depth survives, shape (sequences, max_depth)."""
        unknown = np.zeros(len(self.rates))
        log = np.array([self.log_likelihood.get(request, unknown) for request in requests])
        weight = np.exp(log - log.max(axis=1, keepdims=True))
        powers = self.rates[:, None] ** np.arange(1, max_depth + 1)
        return np.asarray(weight / weight.sum(axis=1, keepdims=True) @ powers)

    def observe(self, outcome: Outcome) -> None:
        """Accepted drafts speak for a high rate, a rejected one for a low rate."""
        accepted, rejected = outcome.accepted, outcome.accepted < outcome.drafted
        log = accepted[:, None] * np.log(self.rates) + rejected[:, None] * np.log(1 - self.rates)
        for request, row in zip(outcome.request.tolist(), log, strict=True):
            self.log_likelihood[request] = self.log_likelihood.get(request, 0.0) + row


def best_depths(batch: Batch, survival: Float) -> NDArray[np.int64]:
    """Depths with the most expected tokens per time, over every depth limit and number of drafts."""
    n, context = batch.sequences, float(batch.context_tokens.sum())
    best_rate, best = 0.0, np.zeros(n, dtype=np.int64)
    for limit in range(survival.shape[1] + 1):
        ranked = np.sort(survival[:, :limit], axis=None)[::-1]
        drafts = np.arange(len(ranked) + 1)
        time = batch.cost.target_ns(n + drafts, n, context)
        time = time + batch.cost.draft_round_ns(n, limit, context)
        rate = (n + np.concatenate([[0.0], np.cumsum(ranked)])) / time
        take = int(rate.argmax())
        if rate[take] > best_rate:
            best_rate, best = float(rate[take]), _likeliest(survival[:, :limit], take)
    return best


def _likeliest(survival: Float, count: int) -> NDArray[np.int64]:
    """How many of the ``count`` likeliest drafts each sequence has; ties go to shallow drafts."""
    order = np.argsort(-survival.T, axis=None, kind="stable")[:count]
    return np.bincount(order % len(survival), minlength=len(survival))
