"""Decisions that take effect late: depths chosen from the batch of some steps ago."""

from __future__ import annotations

from collections import deque

import numpy as np

from sim.engine.batch import Int64
from sim.policies.base import Depths


class Late:
    """Answers of a policy on their way: each is given ``steps`` decisions after it was made.

    An engine that schedules a step while the one before it runs knows neither that step's batch nor its
    outcome. After an idle time, and before enough answers are under way, the oldest one is given.
    """

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self._under_way: deque[tuple[Int64, Depths]] = deque()

    def answer(self, requests: Int64, depths: Depths) -> Depths:
        """Take the answer for these requests now, and give the one that is due for them.

        A request that the older batch did not hold gets no drafts, unless one depth was for all.
        """
        kept = depths if isinstance(depths, int) else depths.copy()
        self._under_way.append((requests.copy(), kept))
        then, due = self._under_way[0]
        if len(self._under_way) > self.steps:
            self._under_way.popleft()
        return due if isinstance(due, int) else _carried_over(then, due, requests)

    def forget(self) -> None:
        """Drop all that is under way."""
        self._under_way.clear()


def _carried_over(then: Int64, depths: Int64, now: Int64) -> Int64:
    """Depths chosen for ``then``, for the requests ``now``; 0 for those that are new."""
    if not len(then):
        return np.zeros(len(now), dtype=np.int64)
    order = np.argsort(then)
    place = np.minimum(np.searchsorted(then, now, sorter=order), len(then) - 1)
    return np.where(then[order[place]] == now, depths[order[place]], 0)
