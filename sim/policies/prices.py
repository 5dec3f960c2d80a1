"""What time is worth in a round, and with it every drafter pass and every slot of the target pass.

Time costs the tokens that the batch emits per ns at its best, over all depths and draft totals; the
expectation is that of ``sim.policies.yields``, the cost that of the tables. Prices are fixed before the
drafts of the round are seen.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sim.policies.base import Batch, Int64
from sim.policies.corners import Corners
from sim.policies.yields import PRICES, Float, Yields


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices of one round.

    ``plain`` and ``drafted`` are the best expected tokens per ns without and with drafts. ``totals``
    are the draft totals worth verifying, with the ``tokens`` that they give, the time of their target
    pass in tokens (``slots``), and the ``usual`` survival of the draft after each. ``levels`` is the
    usual survival by level; from level j drafting goes on while more than ``needed[j]`` of it is left.
    """

    plain: float
    drafted: float
    totals: list[int]
    tokens: list[float]
    slots: list[float]
    usual: list[float]
    levels: Float
    needed: Float

    def affordable(self, best: NDArray[np.floating]) -> int:
        """Drafts to verify of ``best``, survivals from the highest down.

        One step of the staircase after the other is bought while it pays, with what further steps give
        scaled by how far the survival of the step's first draft is from its usual. So only likelier
        drafts decide on a draft: none ever decides on one before it.
        """
        at = 0
        while at < len(self.totals) - 1:
            scale = float(best[self.totals[at]]) / max(self.usual[at], 1e-9)
            to = self._next_that_pays(at, scale)
            if to is None:
                break
            at = to
        return self.totals[at]

    def _next_that_pays(self, at: int, scale: float) -> int | None:
        tokens, slots = self.tokens, self.slots
        further = range(at + 1, len(slots))
        return next((j for j in further if scale * (tokens[j] - tokens[at]) > slots[j] - slots[at]), None)


def fix_prices(batch: Batch, corners: Corners, yields: Yields) -> Prices:
    """Prices for the next round of a batch that is not empty."""
    cost, n, context = batch.cost, batch.sequences, float(batch.context_tokens.sum())
    totals = corners.of(cost, n)
    ranks, tokens, levels = _expected(n, totals, yields)
    first = cost.first_ns(totals, n, n, context)
    slots = cost.target_ns(n + totals, n, context) + first
    time = slots + cost.further_ns(n, np.arange(len(tokens)), context)[:, None]
    if not cost.habits.idle_pass:
        time[0] -= first
    rate = (n + tokens) / time
    price = float(rate.max())
    needed = _needed((tokens - price * slots).max(axis=1), price * float(cost.further_ns(n, 2, context)))
    return Prices(
        plain=float(rate[0].max()),
        drafted=float(rate[1:].max()),
        totals=totals.tolist(),
        tokens=tokens[-1].tolist(),
        slots=(price * _beside_prompts(batch, totals, slots, first)).tolist(),
        usual=np.interp(totals + 0.5, ranks, PRICES[::-1]).tolist(),
        levels=levels,
        needed=needed,
    )


def _expected(n: int, totals: Int64, yields: Yields) -> tuple[Float, Float, Float]:
    """Rank of every survival of ``PRICES`` from the highest down; tokens of ``totals`` by depth (rows).

    The last is the mean survival of every level.
    """
    count, value = yields.by_depth()
    ranks, gained = n * count[:, ::-1], n * value[:, ::-1]
    tokens = np.array([np.interp(totals, *row) for row in zip(ranks, gained, strict=True)])
    return ranks[-1], tokens, np.diff(value[:, 0])


def _needed(worth: Float, pass_price: float) -> Float:
    """By level, the share of the usual survivals at which some deeper level just pays its passes."""
    depth = np.arange(len(worth))
    price, gain = pass_price * (depth - depth[:, None]), worth - worth[:, None]
    pays = (price >= 0) & (gain > 0) & (depth > depth[:, None])
    return np.asarray(np.divide(price, gain, out=np.full(gain.shape, np.inf), where=pays).min(axis=1))


def _beside_prompts(batch: Batch, totals: Int64, slots: Float, first: Float) -> Float:
    """Time of the target pass when the next step also computes the prompt tokens that are ahead."""
    if not batch.prompt_tokens_ahead:
        return slots
    cost, n = batch.cost, batch.sequences
    beside = n + min(batch.prompt_tokens_ahead, cost.max_tokens - n - int(totals[-1]))
    context = float(batch.context_tokens.sum())
    return np.asarray(cost.target_ns(beside + totals, n, context) + first)
