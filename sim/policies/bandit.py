"""``bandit``: depths tried out per batch size, ever more rarely, and else the best one seen so far.

Rule of Nightjar (arXiv 2512.22420), a bandit over the depths 0 to ``k_max`` with the batch size as
context, after Ada-BinGreedy (Luo et al. 2018, arXiv 1708.01799). For each context, its steps fall into
blocks of 1, 2, 4, 8, ... steps, and a block of H steps into bins of floor(sqrt(H)) steps that keep one
depth. The b-th bin of a block explores with probability 1/b: a depth drawn from those not tried yet, or
from all when there are none. Else it takes the depth with the least 1 / (mean goodput) + [the step before
had depth 0 and k > 0] ``switch_cost`` / k, among those tried. Goodput is tokens per request and time,
observed. Granularity: whole batch, one depth per bin. Inputs: batch size, step latencies, tokens; no cost
tables, no acceptance model.

What was checked: the abstracts; equations, blocks and 1/b in a detailed summary by a third party; the
length of a bin in a prototype whose authors are not certain (it explores with 1/sqrt(b), but 1/b is what
gives the regret of sqrt(T) that the paper states, and it weighs depths by hand-set priors). How the paper
draws a depth is not known. So this is the rule as far as known, not a transcript.
Departures: batch sizes share a context between powers of two (1, 2, 3-4, 5-8, ...); steps with prefill
tokens teach nothing; a step's latency counts for the depth that it verified, although it holds the
drafting for the next; ``switch_cost`` is one number (the paper's is a table: 18 to 102 ms on an RTX 4090),
0 unless stated because this engine charges nothing for drafting again; the drafter stays on the GPU.
"""

from __future__ import annotations

from math import isqrt
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from sim.policies.base import Batch, Depths, Outcome, PolicyDefaults
from sim.policies.config import Bounds, PolicyConfig
from sim.streams import uniforms
from sim.units import DurationNs

Float = NDArray[np.float64]


class Context:
    """What one range of batch sizes has taught, and where in its blocks and bins it stands."""

    def __init__(self, arms: int) -> None:
        self.steps = np.zeros(arms, dtype=np.int64)
        self.goodput = np.zeros(arms)
        self.block, self.bin, self.left, self.depth = 1, 0, 0, 0

    def open_bin(self) -> None:
        """Go to the next bin, and to a block of twice the length after a block's last."""
        length = 1 << (self.block - 1)
        if self.bin * isqrt(length) >= length:
            self.block, self.bin = self.block + 1, 0
        self.bin += 1
        self.left = isqrt(1 << (self.block - 1))

    def learn(self, depth: int, goodput: float) -> None:
        """Average one more step of ``depth``."""
        self.steps[depth] += 1
        self.goodput[depth] += (goodput - self.goodput[depth]) / self.steps[depth]

    def trial(self, draw: float) -> int:
        """A depth not tried yet, or any when there is none; ``draw`` in (0, 1) selects it."""
        untried = np.flatnonzero(self.steps == 0)
        among = untried if len(untried) else np.arange(len(self.steps))
        return int(among[int(draw * len(among))])

    def best(self, penalty: Float) -> int:
        """The depth with the least time per token and penalty (ns), among those tried."""
        tried = self.steps > 0
        ns = np.full(len(tried), np.inf)
        ns[tried] = 1 / self.goodput[tried] + penalty[tried]
        return int(ns.argmin())


class Bandit(PolicyDefaults):
    """One depth per bin of steps, drawn or the best known."""

    wants_outcomes = True

    def __init__(self, max_depth: int, switch_cost_ns: int, seed: int) -> None:
        self.arms, self.seed = max_depth + 1, seed
        k = np.arange(self.arms)
        self.penalty = np.where(k > 0, switch_cost_ns / np.maximum(k, 1), 0.0)
        self.contexts: dict[int, Context] = {}
        self.bins = 0
        self.depth = 0
        self.verified: Context | None = None
        self.chosen: Context | None = None
        self.verified_depth = 0

    def draft_depths(self, batch: Batch) -> Depths:
        """The depth of the context's bin; nothing for an empty batch."""
        self.verified, self.verified_depth = self.chosen, self.depth
        n = batch.sequences
        if n == 0:
            self.chosen = None
            return 0
        self.chosen = context = self._context(n)
        if context.left == 0:
            self._next_bin(context)
        context.left -= 1
        self.depth = context.depth
        return self.depth

    def _context(self, n: int) -> Context:
        """The context of a batch size, shared between powers of two."""
        key = (n - 1).bit_length()
        if key not in self.contexts:
            self.contexts[key] = Context(self.arms)
        return self.contexts[key]

    def _next_bin(self, context: Context) -> None:
        """Open a bin and set its depth: at random in one bin of b, else the best known."""
        context.open_bin()
        chance, arm = uniforms(self.seed, "policy/bandit", self.bins, 2).tolist()
        self.bins += 1
        if chance * context.bin < 1 or not context.steps.any():
            context.depth = context.trial(arm)
        else:
            context.depth = context.best(self.penalty * (self.depth == 0))

    def observe(self, outcome: Outcome) -> None:
        """Learn the goodput of a step without prefill, for the depth that it verified."""
        requests = len(outcome.request)
        if self.verified is not None and requests and not outcome.prefill_tokens:
            tokens = requests + int(outcome.accepted.sum())
            self.verified.learn(self.verified_depth, tokens / requests / outcome.step_ns)


class BanditConfig(PolicyConfig):
    """Depth learned per batch size from observed time per token, with rare trials (Nightjar)."""

    policy: Literal["bandit"]
    k_max: int = Field(default=7, ge=1, le=64, description="deepest depth tried")
    switch_cost: DurationNs = Field(
        default=0, description="time that drafting anew after depth 0 costs, shared among its k drafts"
    )
    seed: int = Field(default=0, ge=0, description="stream of the draws; all runs with it try in one order")

    def build(self, bounds: Bounds) -> Bandit:
        """The policy, its depth cut to what the engine allows."""
        return Bandit(min(self.k_max, bounds.max_depth), self.switch_cost, self.seed)

    @property
    def depth(self) -> int:
        """The deepest depth tried."""
        return self.k_max
