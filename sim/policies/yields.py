"""What drafts are worth in the traffic at hand: their survivals as a fading histogram, calibrated.

``Calibration`` corrects a drafter's confidences by what became of the drafts that were verified;
``Yields`` remembers the corrected survivals of everything proposed, and says how many drafts a price
would buy and how many tokens they would give. Both learn from the past alone.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from sim.policies.base import Claims, Int64

Float = NDArray[np.float64]
PRICES: Final[Float] = np.linspace(0, 1, 33) ** 2
"""Survivals that a draft may be asked to have; closer together where they are low."""
_BINS: Final = len(PRICES) - 1
_CLAIM_BINS: Final = 16
_PRIOR: Final = 16


class Calibration:
    """Factor on a confidence, by its size: accepted over claimed among the drafts that were tested.

    A bin of claims starts as if ``prior`` drafts had been accepted just as often as claimed; what was
    learned fades with ``memory`` tested drafts.
    """

    def __init__(self, prior: float, memory: float) -> None:
        claim = (np.arange(_CLAIM_BINS + 1) + 0.5) / _CLAIM_BINS
        self._prior, self._memory = prior * claim, memory
        self._claimed, self._accepted = np.zeros(_CLAIM_BINS + 1), np.zeros(_CLAIM_BINS + 1)
        self._factor = np.ones(_CLAIM_BINS + 1, dtype=np.float32)

    def apply(self, claims: Claims) -> Claims:
        """Corrected claims, in the same shape."""
        corrected: Claims = claims * self._factor.take(_claim_bin(claims))
        return np.minimum(corrected, np.float32(1))

    def learn(self, claims: Float, verified: Int64, accepted: Int64) -> None:
        """Count the drafts up to and including the first rejected one; ``claims`` (sequences, depth)."""
        depth = np.arange(claims.shape[1])
        tested = depth < np.minimum(accepted + 1, verified)[:, None]
        claim, passed = claims[tested], (depth < accepted[:, None])[tested]
        fade, at = np.exp(-len(claim) / self._memory), _claim_bin(claim)
        self._claimed = fade * self._claimed + np.bincount(at, claim, _CLAIM_BINS + 1)
        self._accepted = fade * self._accepted + np.bincount(at, passed, _CLAIM_BINS + 1)
        ratio = (self._accepted + self._prior) / (self._claimed + self._prior)
        self._factor = ratio.astype(np.float32)


def _claim_bin(claims: NDArray[np.floating]) -> Int64:
    return (claims * _CLAIM_BINS).astype(np.int64)


class Yields:
    """Survivals of the drafts of recent rounds, per sequence; fades with ``memory`` sequences.

    Starts as if ``start`` of the drafts of every level were accepted.
    """

    def __init__(self, max_depth: int, start: float, memory: float) -> None:
        self.max_depth, self._memory = max_depth, memory
        self._conditional = np.full(max_depth, start)
        self._start = np.arange(max_depth) * _BINS
        self._count, self._value = np.zeros(max_depth * _BINS), np.zeros(max_depth * _BINS)
        self._weight = 0.0
        self._add(np.full((_PRIOR, max_depth), start).cumprod(axis=1), 0.0)

    def learn(self, survive: Claims, deepest: int) -> None:
        """Take in a round: survivals of shape (sequences, max_depth), known up to level ``deepest``.

        Deeper levels are filled in with what is usual after those before.
        """
        keep = self._memory / (len(survive) + self._memory)
        self._add(self._filled(survive, deepest, keep), keep)

    def _filled(self, survive: Claims, deepest: int, keep: float) -> Float:
        whole = survive.astype(np.float64)
        sums = np.concatenate([[len(whole)], whole[:, :deepest].sum(axis=0)])
        rate = np.divide(sums[1:], sums[:-1], out=self._conditional[:deepest].copy(), where=sums[:-1] > 0)
        self._conditional[:deepest] += (1 - keep) * (rate - self._conditional[:deepest])
        for level in range(deepest, self.max_depth):
            whole[:, level] = (whole[:, level - 1] if level else 1.0) * self._conditional[level]
        return whole

    def _add(self, survive: Float, keep: float) -> None:
        at = (np.minimum((np.sqrt(survive) * _BINS).astype(np.int64), _BINS - 1) + self._start).ravel()
        size = len(self._count)
        self._weight = keep * self._weight + len(survive)
        self._count = keep * self._count + np.bincount(at, minlength=size)
        self._value = keep * self._value + np.bincount(at, survive.ravel(), size)

    def by_depth(self) -> tuple[Float, Float]:
        """Drafts per sequence that survive each price, and tokens they give, by depth.

        Both of shape (max_depth + 1, prices), falling along the prices; row k is for drafts of the
        first k levels.
        """
        return self._summed(self._count), self._summed(self._value)

    def _summed(self, table: Float) -> Float:
        total = np.zeros((self.max_depth + 1, len(PRICES)))
        above = table.reshape(self.max_depth, _BINS)[:, ::-1].cumsum(axis=1)[:, ::-1]
        total[1:, :_BINS] = above.cumsum(axis=0) / self._weight
        return total
