"""Drafts ranked over a whole batch: which ones a budget buys, shared by policies that trim.

``survival[r, j]`` is the probability that draft ``j`` of sequence ``r`` and all before it are
accepted: the running product of its confidences. It never rises with ``j``, so the most likely
drafts of a batch are always prefixes (DSpark, arXiv 2607.05147, Algorithm 1).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sim.policies.base import Claims, Int64

Survival = NDArray[np.float32]


def survival(confidence: Claims) -> Survival:
    """Survival of every draft, shape (sequences, max_depth), from the drafts' confidences."""
    return np.cumprod(confidence, axis=1)


def ranked(survive: Survival) -> Survival:
    """Survival of all drafts of a batch, most likely first, shape (sequences * max_depth,)."""
    return np.sort(survive, axis=None)[::-1]


def spend(survive: Survival, drafts: int) -> Int64:
    """Depths that verify the ``drafts`` most likely drafts; those that cannot survive are left out.

    Of equally likely drafts the shallower come first, then those of earlier sequences.
    """
    if drafts <= 0:
        return np.zeros(len(survive), dtype=np.int64)
    possible: Int64 = (survive > 0).sum(axis=1)
    if drafts >= int(possible.sum()):
        return possible
    last = np.partition(survive, survive.size - drafts, axis=None)[survive.size - drafts]
    depths: Int64 = (survive > last).sum(axis=1)
    left = drafts - int(depths.sum())
    even = np.argwhere((survive == last).T)[:left, 1]
    depths += np.bincount(even, minlength=len(survive))
    return depths
