"""What drafts are worth in the traffic at hand: their survivals as a fading histogram, calibrated.

``Calibration`` corrects a drafter's confidences by what became of the drafts that were verified;
``Yields`` remembers the corrected survivals of everything proposed, and says how many drafts a price
would buy and how many tokens they would give. Both learn from the past alone.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.policies.base import Claims, Int64

Float = NDArray[np.float64]
PRICES: Final[Float] = np.linspace(0, 1, 33) ** 2
"""Survivals that a draft may be asked to have; closer together where they are low."""
_BINS: Final = len(PRICES) - 1
_CLAIM_BINS: Final = 16
_PRIOR: Final = 16
_SAMPLE: Final = 64
_ROUNDS: Final = 4


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


def sampled(sequences: int) -> slice:
    """Of many sequences, every second, third, ...: at most ``_SAMPLE`` to learn from."""
    return slice(None, None, -(-sequences // _SAMPLE) or 1)


def _claim_bin(claims: NDArray[np.floating]) -> Int64:
    return (claims * _CLAIM_BINS).astype(np.int64)


class Expected(NamedTuple):
    """What the drafts of a batch will give: ``tokens`` of the likeliest totals, by depth (rows).

    ``usual`` is the survival of the draft after each total, ``levels`` the mean survival of each level.
    """

    tokens: Float
    usual: Float
    levels: Float


class Yields:
    """Survivals of the drafts of recent rounds, per sequence; fades with ``memory`` sequences.

    Starts as if ``start`` of the drafts of every level were accepted. Expectations are renewed after a
    quarter of ``memory``, but not more often than every ``_ROUNDS`` rounds; ``version`` counts that.
    """

    def __init__(self, max_depth: int, start: float, memory: float) -> None:
        self.max_depth, self._memory = max_depth, memory
        self._conditional = np.full(max_depth, start)
        self._start = np.arange(max_depth) * _BINS
        self._count, self._value = np.zeros(max_depth * _BINS), np.zeros(max_depth * _BINS)
        self._weight = 0.0
        self._add(np.full((_PRIOR, max_depth), start).cumprod(axis=1), 0.0)
        self.version = 0
        self._expected: dict[int, Expected] = {}
        self._unseen = self._rounds = 0

    def learn(self, survive: Claims, deepest: int) -> None:
        """Take in a round: survivals of shape (sequences, max_depth), known up to level ``deepest``.

        Deeper levels are filled in with what is usual after those before. Of many sequences, every
        second, third, ... counts, so that at most ``_SAMPLE`` do.
        """
        sample = survive[sampled(len(survive))]
        keep = self._memory / (len(sample) + self._memory)
        self._add(self._filled(sample, deepest, keep), keep)
        self._unseen, self._rounds = self._unseen + len(sample), self._rounds + 1
        if self._unseen >= self._memory / 4 and self._rounds >= _ROUNDS:
            self._expected, self._unseen, self._rounds = {}, 0, 0
            self.version += 1

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

    def expected(self, sequences: int, totals: Int64) -> Expected:
        """What the likeliest ``totals`` drafts of so many sequences will give; ``totals`` go with them."""
        if sequences not in self._expected:
            self._expected[sequences] = self._expectation(sequences, totals)
        return self._expected[sequences]

    def _expectation(self, n: int, totals: Int64) -> Expected:
        """Between two extremes, by 1 / n: one round is like all others, or it is a mixture of all.

        Of one sequence the likeliest drafts are its first ones; of very many, those of any depth that
        survive best. Sums over order statistics lie between.
        """
        count, value = self.by_depth()
        levels, ranks = np.diff(value[:, 0]), n * count[:, ::-1]
        mixed = np.array([np.interp(totals, *row) for row in zip(ranks, n * value[:, ::-1], strict=True)])
        whole = n * value[:, :1]
        alike = np.minimum(np.interp(totals, n * np.arange(len(value)), whole[:, 0]), whole)
        usual = levels[np.minimum(totals // n, self.max_depth - 1)]
        share = 1 / n
        return Expected(
            tokens=share * alike + (1 - share) * mixed,
            usual=share * usual + (1 - share) * np.interp(totals + 0.5, ranks[-1], PRICES[::-1]),
            levels=levels,
        )

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
