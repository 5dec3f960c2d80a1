"""From chances to run lengths: the one place where luck becomes accepted drafts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sim.acceptance.confidence import Claimed, Claims
from sim.acceptance.config import Decay
from sim.acceptance.spans import Spans
from sim.acceptance.trees import Int64, Reach, Siblings, bounded, lower_ranks
from sim.errors import InputError, SimulationError
from sim.policies.base import Tree

Floats = NDArray[np.float64]
Runs = NDArray[np.uint8]
MAX_DEPTH = 255
"""Runs are uint8."""

_TINY = 1e-300  # nothing passes it, and dividing by it is safe


class DrawnPath:
    """A path whose claims are drawn when first asked for, and kept."""

    __slots__ = ("_claim", "_confidence", "reach", "run")

    def __init__(self, run: Runs, claim: Callable[[], Claimed], reach: Callable[[Tree], Reach]) -> None:
        self.run = run
        self.reach = reach
        self._claim = claim
        self._confidence: Claimed | None = None

    @property
    def found(self) -> None:
        """Such a drafter always has something to propose."""
        return None

    def confidence(self) -> Claimed:
        """Claims of shape (output_tokens, max_depth); ``InputError`` if the scenario states none."""
        if self._confidence is None:
            self._confidence = self._claim()
        return self._confidence


class Chance(Protocol):
    """Acceptance of the tokens of requests, whatever the round they are drafted in."""

    def __call__(self, spans: Spans, /) -> Floats | float:
        """Probability that the draft for each output position is accepted, flat, or one for all."""
        ...


def certain(_spans: Spans, /) -> float:
    """Leave acceptance to the draft position alone."""
    return 1.0


@dataclass(frozen=True)
class DrawnProcess:
    """Draft ``j`` of a round at ``p`` is accepted when ``u[p+j] < by_depth[j] * chance[p+j] * decay[p+j]``.

    ``u`` is one stream per request, indexed by output position. A generation touches each
    position at most once (a round at ``p`` tests p, p+1, ... up to its first rejection and the
    next round starts behind it), so every law of independent draws holds for it exactly, under
    any policy. ``by_depth`` has shape (max_depth,).
    """

    seed: int
    by_depth: Floats
    chance: Chance
    decay: Decay | None
    claims: Claims | None
    mean_tokens: Callable[[int], float]
    siblings: Siblings

    @property
    def max_depth(self) -> int:
        """Most drafts in a round."""
        return len(self.by_depth)

    def path(self, request: int, prompt_tokens: int, output_tokens: int) -> DrawnPath:
        """Path of request number ``request``."""
        asked = (request, prompt_tokens, output_tokens)
        run = self.runs(*(np.array([each]) for each in asked))
        return DrawnPath(run, partial(self._claim, *asked), partial(self._reach, *asked))

    def runs(self, requests: Int64, prompt_tokens: Int64, output_tokens: Int64) -> Runs:
        """``path(...).run`` of several requests end to end, shape (sum of output tokens,)."""
        spans = Spans(requests, output_tokens + self.max_depth)
        luck, likely = self._luck(spans, fading(self.decay, spans, prompt_tokens))
        starts = len(luck) - self.max_depth
        run = leading_runs(luck / likely, self.by_depth, starts)
        return run if len(requests) == 1 else run[spans.but_last(self.max_depth)[:starts]]

    def _luck(self, spans: Spans, fade: Floats | float) -> tuple[Floats, Floats | float]:
        """The draw of every output position, flat, and its token's chance.

        The draft for a position passes when its depth's rate exceeds their quotient.
        """
        likely = np.maximum(self.chance(spans) * fade, _TINY)
        return spans.uniforms(self.seed, "acceptance"), likely

    def _reach(self, request: int, prompt_tokens: int, rows: int, tree: Tree) -> Reach:
        """How many nodes of the tree each draft of a round takes to be accepted."""
        check_depth(tree.depth, self.max_depth)
        count = rows + self.max_depth
        luck, likely = self._luck(Spans.one(request, count), decay_factor(self.decay, prompt_tokens, count))
        return self.siblings.reach(tree, self._ranks(tree, luck, np.broadcast_to(likely, count), rows))

    def _ranks(self, tree: Tree, luck: Floats, likely: Floats, rows: int) -> Iterator[Int64]:
        """Rank of the target's token, level by level, from the draws that decide the chain."""
        sibling = self.siblings.known(tree)
        for depth, rate in enumerate(self.by_depth[: tree.depth].tolist()):
            draw, token = luck[depth : depth + rows], likely[depth : depth + rows]
            chance = rate * token
            left = (1 - draw) / np.maximum(1 - chance, _TINY)
            lower = lower_ranks(left, bounded(chance, sibling), tree.width)
            yield np.where(draw / token < rate, 0, lower)

    def _claim(self, request: int, prompt_tokens: int, rows: int) -> Claimed:
        if self.claims is None:
            raise no_confidence()
        count = rows + self.max_depth
        fade = decay_factor(self.decay, prompt_tokens, count)
        luck, likely = self._luck(Spans.one(request, count), fade)
        accepted = ahead(luck / likely, rows, self.max_depth) < self.by_depth
        return self.claims.draw(request, accepted, ahead(fade, rows, self.max_depth))

    def expected_tokens_per_round(self, depth: int) -> float:
        """Mean tokens per round over requests of equal, long outputs at short contexts (no decay)."""
        return self.mean_tokens(check_depth(depth, self.max_depth))


def leading_runs(needed: Floats, by_depth: Floats, output_tokens: int) -> Runs:
    """Leading drafts with ``needed[p+j] < by_depth[j]`` for each start ``p``, shape (output_tokens,).

    ``needed`` has at least ``output_tokens + len(by_depth)`` entries.
    """
    run = np.zeros(output_tokens, dtype=np.uint8)
    alive = np.ones(output_tokens, dtype=np.bool_)
    for depth, rate in enumerate(by_depth.tolist()):
        alive &= needed[depth : depth + output_tokens] < rate
        run += alive
    return run


def ahead(values: Floats, rows: int, max_depth: int) -> Floats:
    """``[p, j] = values[p+j]``, shape (rows, max_depth); ``values`` has rows + max_depth entries."""
    if max_depth == 0:
        return np.empty((rows, 0))
    return np.lib.stride_tricks.sliding_window_view(values, max_depth)[:rows]


def decay_factor(decay: Decay | None, prompt_tokens: int, count: int) -> Floats:
    """Factor on acceptance at each of the first ``count`` output positions, shape (count,)."""
    fade = fading(decay, Spans.one(0, count), np.array([prompt_tokens]))
    return np.array(np.broadcast_to(fade, count))


def fading(decay: Decay | None, spans: Spans, prompt_tokens: Int64) -> Floats | float:
    """Factor on acceptance at each output position, flat, or 1 for all; one prompt a request."""
    if decay is None or not np.any(prompt_tokens + spans.counts > decay.from_tokens):
        return 1.0
    beyond = spans.spread(prompt_tokens - decay.from_tokens) + spans.positions
    return np.asarray(np.exp2(-np.maximum(beyond, 0) / decay.half_life_tokens))


def no_confidence() -> InputError:
    """Make the error for a policy that wants claims nobody described."""
    return InputError(
        "a policy needs the drafter's confidence but acceptance states none; "
        "add for example confidence: {auc: 0.85}"
    )


def check_depth(depth: int, max_depth: int) -> int:
    """``depth`` itself, or ``SimulationError`` outside 0..max_depth."""
    if not 0 <= depth <= max_depth:
        raise SimulationError(f"depth {depth} is outside 0..{max_depth}")
    return depth
