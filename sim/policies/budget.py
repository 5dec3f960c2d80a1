"""Drafts ranked over a whole batch: which ones a budget buys, shared by policies that trim.

``survival[r, j]`` is the probability that draft ``j`` of sequence ``r`` and all before it are
accepted: the running product of its confidences. It never rises with ``j``, so the most likely
drafts of a batch are always prefixes (DSpark, arXiv 2607.05147, Algorithm 1).

Lossless verification asks that whether draft ``j`` is verified does not depend on draft ``j`` itself,
and so on no confidence behind it (the same, appendix A). ``spend`` keeps that for any budget made from
the past: what ranks before a draft are its own predecessors and drafts of other sequences. A budget
made from all confidences of the drafts at hand breaks it. Both presume confidences that are known
before the token is drawn, such as a confidence head's or a drafter's largest probability. The
probability of the very token drawn is no such confidence; with it, a rule is lossless only where drafts
are not drawn at all (greedy drafting).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sim.cost.step_cost import StepCost
from sim.policies.base import Claims, Depths, Int64
from sim.policies.memory import PerRequest

Survival = NDArray[np.floating]
Float = NDArray[np.float64]


def survival(confidence: Claims) -> Claims:
    """Survival of every draft, shape (sequences, max_depth), from the drafts' confidences."""
    return np.cumprod(confidence, axis=1)


def ranked(survive: Survival) -> Survival:
    """Survival of all drafts of a batch, most likely first, shape (sequences * max_depth,)."""
    return np.sort(survive, axis=None)[::-1]


def expected_tokens(survive: Survival, least: int = 0) -> Float:
    """Tokens that a step emits with the 0, 1, 2, ... likeliest drafts, those without hope left out.

    Every sequence's own token and its first ``least`` drafts are in it from the start.
    """
    likeliest = ranked(survive[:, least:])
    start = [len(survive) + survive[:, :least].sum(dtype=np.float64)]
    return np.cumsum(np.concatenate([start, likeliest[: np.count_nonzero(likeliest)]]))


def spend(survive: Survival, drafts: int, least: int = 0) -> Int64:
    """Depths that verify the ``drafts`` most likely drafts; those that cannot survive are left out.

    Of equally likely drafts the shallower come first, then those of earlier sequences. Each sequence's
    first ``least`` drafts are verified on top.
    """
    if least:
        floor: Int64 = (survive[:, :least] > 0).sum(axis=1)
        return floor + spend(survive[:, least:], drafts)
    if drafts <= 0:
        return np.zeros(len(survive), dtype=np.int64)
    last = np.partition(survive, survive.size - drafts, axis=None)[-drafts] if drafts < survive.size else 0
    enough = np.count_nonzero(survive >= last if last > 0 else survive > 0, axis=1)
    if last <= 0 or int(enough.sum()) == drafts:
        return np.asarray(enough, dtype=np.int64)
    depths: Int64 = (survive > last).sum(axis=1)
    left = drafts - int(depths.sum())
    even = np.argwhere((survive == last).T)[:left, 1]
    depths += np.bincount(even, minlength=len(survive))
    return depths


class Past:
    """Survivals as they were ``lag`` decisions of the same request ago; 1 where there was none yet."""

    def __init__(self, max_depth: int, lag: int) -> None:
        self._width = max_depth
        self._kept = PerRequest(1.0, max_depth * lag)

    def exchange(self, requests: Int64, survive: Survival, depths: Depths) -> Float:
        """Old survivals of the drafts now proposed, 0 for others; remembers the new ones.

        Which drafts those are is said by ``depths``: a confidence of 0 among the new ones must not
        show. A request without proposals is remembered like a new one.
        """
        old = self._kept.of(requests)
        new = np.where(survive[:, :1] > 0, survive, 1.0)
        self._kept.put(requests, np.concatenate([old[:, self._width :], new], axis=1))
        proposed = np.arange(self._width) < np.reshape(depths, (-1, 1))
        return old[:, : self._width] * proposed


class Profile:
    """Times of target passes over their tokens alone, as an engine profiles itself at its start.

    ``tokens`` stand for as many sequences as carry ``max_depth`` drafts each, the last one perhaps
    fewer, with ``context_tokens`` of KV each.
    """

    def __init__(self, max_depth: int, context_tokens: int) -> None:
        self._block, self._context = max_depth + 1, context_tokens
        self._cost: StepCost | None = None
        self._ns = np.zeros(0)

    def ns(self, cost: StepCost) -> Float:
        """Nanoseconds of passes of 0, 1, 2, ... tokens, up to the largest step that ``cost`` knows."""
        if cost is not self._cost:
            tokens = np.arange(largest_step(cost) + 1)
            sequences = -(-tokens // self._block)
            self._cost, self._ns = cost, profiled_ns(cost, tokens, sequences, self._context)
        return self._ns


def profiled_ns(cost: StepCost, tokens: Int64, sequences: Int64, context_tokens: int) -> Float:
    """Target passes of ``tokens`` over ``sequences`` with ``context_tokens`` of KV each."""
    # The context of a pass may be an array, too: every term is linear in it.
    return cost.target_ns(tokens, sequences, sequences * context_tokens)  # type: ignore[arg-type]


def largest_step(cost: StepCost) -> int:
    """Tokens of the largest step that the cost tables cover."""
    return cost.max_tokens
