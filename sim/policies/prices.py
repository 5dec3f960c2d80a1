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
from sim.policies.yields import Float, Yields


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices of one round.

    ``plain`` and ``drafted`` are the best expected tokens per ns without and with drafts. ``totals``
    are the draft totals worth verifying, with the ``tokens`` that they give, the time of their target
    pass in tokens (``slots``), and the ``usual`` survival of the draft after each. ``levels`` is the
    usual survival by level; from level j drafting goes on while more than ``needed[j]`` of it is left.
    ``fixed_for`` is what they were fixed for: sequences, context and prompt tokens, version of the yields.
    """

    fixed_for: tuple[int, float, int, int]
    plain: float
    drafted: float
    totals: list[int]
    tokens: list[float]
    slots: list[float]
    usual: list[float]
    levels: list[float]
    needed: list[float]

    def hold_for(self, batch: Batch, yields: Yields) -> bool:
        """Whether they still hold: for as many sequences, in a context within 1 %."""
        sequences, context, prompts, version = self.fixed_for
        same = (sequences, prompts, version) == (batch.sequences, batch.prompt_tokens_ahead, yields.version)
        return same and abs(int(batch.context_tokens.sum()) - context) <= 0.01 * context

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
    corner = corners.of(cost, n)
    expected = yields.expected(n, corner.totals)
    slots, first = corner.slots[0] + context * corner.slots[1], corner.first[0] + context * corner.first[1]
    further = corner.further[0] + context * corner.further[1]
    passes = np.maximum(np.arange(len(expected.tokens)) - 1, 0)
    time = slots + further * passes[:, None]
    if not cost.habits.idle_pass:
        time[0] -= first
    rate = (n + expected.tokens) / time
    price = float(rate.max())
    beside = _beside_prompts(batch, corner.totals, first) if batch.prompt_tokens_ahead else slots
    return Prices(
        fixed_for=(n, context, batch.prompt_tokens_ahead, yields.version),
        plain=float(rate[0].max()),
        drafted=float(rate[1:].max()),
        totals=corner.totals.tolist(),
        tokens=expected.tokens[-1].tolist(),
        slots=(price * beside).tolist(),
        usual=expected.usual.tolist(),
        levels=expected.levels.tolist(),
        needed=_needed(expected.tokens, price * slots, price * further),
    )


def _needed(tokens: Float, slots: Float, a_pass: float) -> list[float]:
    """By level, the share of the usual survivals at which some deeper level just pays.

    Every level is trimmed to the total that is best for it; going deeper brings more tokens, and costs
    passes and slots, all in tokens.
    """
    rows = range(len(tokens))
    best = (tokens - slots).argmax(axis=1)
    brings, costs = tokens[rows, best].tolist(), (slots[best] + a_pass * np.arange(len(tokens))).tolist()
    return [
        min(
            ((costs[j] - costs[i]) / (brings[j] - brings[i]) for j in rows[i + 1 :] if brings[j] > brings[i]),
            default=np.inf,
        )
        for i in rows
    ]


def _beside_prompts(batch: Batch, totals: Int64, first: Float) -> Float:
    """Time of the slots when the next step also computes the prompt tokens that are ahead."""
    cost, n = batch.cost, batch.sequences
    tokens = n + min(batch.prompt_tokens_ahead, cost.max_tokens - n - int(totals[-1])) + totals
    return np.asarray(cost.target_ns(tokens, n, float(batch.context_tokens.sum())) + first)
