"""Replays recorded acceptance: recorded runs as they were, recorded chances with fresh luck."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from sim.acceptance.confidence import Claimed, Claims
from sim.acceptance.config import Decay
from sim.acceptance.paths import DrawnPath, Runs, ahead, check_depth, decay_factor, no_confidence
from sim.acceptance.trace import Row, SeenRow, by_start
from sim.acceptance.trees import Int64, Reach, Siblings, bounded, lower_ranks, recorded_ranks
from sim.policies.base import Tree
from sim.streams import uniforms

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

_TOGETHER = 256  # rows walked at once, for speed; bounds memory


@dataclass(frozen=True)
class TraceProcess:
    """Draft ``j`` of a round at ``p`` is accepted when ``u[p+j] < chance[p, j] * decay[p+j] * scale``.

    ``u`` is one stream per request, indexed by output position. A generation tests each position
    at most once, so a row of chances replays rejection sampling exactly at every depth and under
    every policy (docs/recorded-acceptance.md); recorded runs are chances of 0 and 1. Rows start
    again when an output is longer. Requests draw rows with replacement, or in order.
    """

    seed: int
    max_depth: int
    rows: Sequence[Row]
    in_order: bool
    decay: Decay | None
    claims: Claims | None
    mean_tokens: Callable[[int], float]
    siblings: Siblings
    scale: float = 1.0

    def path(self, request: int, prompt_tokens: int, output_tokens: int) -> DrawnPath:
        """Path of request number ``request``."""
        row = self.rows[self._row(request)]
        count = output_tokens + self.max_depth
        lost = decay_factor(self.decay, prompt_tokens, count) * self.scale
        fade = ahead(lost, output_tokens, self.max_depth)
        passes = self._luck(request, output_tokens) < row.chances(output_tokens, self.max_depth) * fade
        run = np.logical_and.accumulate(passes, axis=1).sum(axis=1, dtype=np.uint8)
        claim = partial(self._claim, row, passes, run, request, fade)
        return DrawnPath(run, claim, partial(self._reach, row, run, request, fade))

    def _luck(self, request: int, output_tokens: int) -> Floats:
        """The draw for draft ``j`` of a round at ``p``, shape (output_tokens, max_depth)."""
        count = output_tokens + self.max_depth
        return ahead(uniforms(self.seed, "acceptance", request, count), output_tokens, self.max_depth)

    def _row(self, request: int) -> int:
        if self.in_order:
            return request % len(self.rows)
        return int(uniforms(self.seed, "acceptance/row", request, 1)[0] * len(self.rows))

    def _claim(self, row: Row, passes: Bools, run: Runs, request: int, fade: Floats) -> Claimed:
        if self.claims is None:
            return _recorded(row, len(run), self.max_depth)
        if isinstance(row, SeenRow):
            passes = self._accepted(run, request, self.claims.base * fade)
        return self.claims.draw(request, passes, fade)

    def _accepted(self, run: Runs, request: int, rates: Floats) -> Bools:
        """Whether each draft is accepted, shape (positions, max_depth).

        What recorded runs cannot know, the fate of drafts behind a rejection, is drawn at
        ``rates``, so that claims behind a rejection give nothing away.
        """
        depths = np.arange(self.max_depth)
        draws = uniforms(self.seed, "acceptance/behind", request, len(run) + self.max_depth)
        behind = ahead(draws, len(run), self.max_depth) < rates
        return np.where(depths < run[:, None], True, (depths > run[:, None]) & behind)

    def _reach(self, row: Row, run: Runs, request: int, fade: Floats, tree: Tree) -> Reach:
        """How many nodes of the tree each draft of a round takes to be accepted."""
        check_depth(tree.depth, self.max_depth)
        if isinstance(row, SeenRow):
            lower = self._lower_ranks(tree, request, len(run) + tree.depth)
            return self.siblings.reach(tree, recorded_ranks(run, lower, tree.depth))
        return self.siblings.reach(tree, self._ranks(tree, row.chances(*fade.shape) * fade, request))

    def _lower_ranks(self, tree: Tree, request: int, count: int) -> Int64:
        """Ranks of tokens that runs say were not the first candidate, shape (count,)."""
        sibling = self.siblings.known(tree)
        left = uniforms(self.seed, "acceptance/sibling", request, count)
        return lower_ranks(left, bounded(self.siblings.base()[0], sibling), tree.width)

    def _ranks(self, tree: Tree, chances: Floats, request: int) -> Iterator[Int64]:
        """Rank of the target's token, level by level, from the draws that decide the chain."""
        sibling, luck = self.siblings.known(tree), self._luck(request, len(chances))
        for draw, chance in islice(zip(luck.T, chances.T, strict=True), tree.depth):
            left = (1 - draw) / np.maximum(1 - chance, 1e-300)
            lower = lower_ranks(left, bounded(chance, sibling), tree.width)
            yield np.where(draw < chance, 0, lower)

    def expected_tokens_per_round(self, depth: int) -> float:
        """Tokens over rounds when every row is walked at ``depth``, last rounds untrimmed; exact."""
        return self.mean_tokens(check_depth(depth, self.max_depth))


def _recorded(row: Row, output_tokens: int, max_depth: int) -> Claimed:
    """The recorded claims by start and draft."""
    if row.confidence is None:
        raise no_confidence()
    return np.array(by_start(row.confidence, output_tokens, max_depth), dtype=np.float32)


# -- expectations ----------------------------------------------------------------------------------


def conditional_rates(rows: Sequence[Row], max_depth: int) -> Floats:
    """Average acceptance of draft ``j`` given those before it, over all starts, shape (max_depth,).

    A depth that no run reaches takes the rate of the depth before it.
    """
    reached = np.zeros(max_depth + 1)
    for row in rows:
        reached[0] += row.positions
        reached[1:] += np.cumprod(row.chances(row.positions, max_depth), axis=1).sum(axis=0)
    rates = np.zeros(max_depth)
    for depth in range(max_depth):
        before = rates[depth - 1] if depth else 0.0
        rates[depth] = reached[depth + 1] / reached[depth] if reached[depth] else before
    return rates


def tokens_per_round(rows: Sequence[Row], depth: int, scale: float = 1.0) -> float:
    """Tokens over rounds when every row is walked once at ``depth``, last rounds untrimmed.

    ``scale`` multiplies every chance. Expectations over luck, exact. By Wald's identity counting the
    round that crosses the end whole makes the ratio free of end effects.
    """
    totals = np.zeros(2)
    left = iter(rows)
    while batch := list(islice(left, _TOGETHER)):
        totals += _walked(batch, depth, scale)
    return float(totals[0] / totals[1])


def _walked(rows: Sequence[Row], depth: int, scale: float) -> tuple[float, float]:
    """Expected tokens and rounds of all rows together, from the expected visits of each position."""
    lengths = np.array([row.positions for row in rows])
    longest = int(lengths.max())
    ends = np.zeros((longest, len(rows), depth + 1))  # behind its last position a row stands still
    for i, row in enumerate(rows):
        ends[: row.positions, i] = _ends(row.chances(row.positions, depth) * scale)
    visits = np.zeros((longest + depth + 1, len(rows)))
    visits[0] = 1
    for position in range(longest):
        visits[position + 1 : position + depth + 2] += (visits[position, :, None] * ends[position]).T
    inside = np.arange(len(visits))[:, None] < lengths
    tokens = np.where(inside, 0, visits * np.arange(len(visits))[:, None]).sum()
    return float(tokens), float(visits[inside].sum())


def _ends(chances: Floats) -> Floats:
    """Probability that a round accepts 0..depth drafts, shape (positions, depth + 1)."""
    reach = np.cumprod(chances, axis=1)
    return np.concatenate((np.ones((len(reach), 1)), reach), axis=1) - np.concatenate(
        (reach, np.zeros((len(reach), 1))), axis=1
    )
