"""``goodput``: the uniform depth with the most expected tokens per unit of step time.

Rule of SmartSpec / TurboSpec (arXiv 2406.14066, section 4: goodput): each step, for k = 0..k_max,
``goodput(k) = n (1 - a^(k+1)) / (1 - a) / T(n, k)`` with ``a`` a global moving average of token
acceptance (start 0.7, weight of a new step 0.15, as in the authors' vLLM branch) and ``T`` the
profiled time of drafting and verifying; the best k is used for the whole batch. Granularity:
whole batch, every step. Inputs: batch size, context length, acceptance history, cost tables.

Acceptance is estimated per token *tried*, accepted / (accepted + rejected), so that tokens after
a rejection do not count. A step without drafts teaches nothing; ``explore_every`` such steps in a
row are followed by one step of depth 1, so that the policy can come back.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from sim.policies.base import Batch, Depths, Outcome, PolicyDefaults
from sim.policies.config import Bounds, PolicyConfig
from sim.policies.times import RoundTimes


class Goodput(PolicyDefaults):
    """Argmax of expected tokens over expected time, one depth for all."""

    wants_outcomes = True

    def __init__(self, max_depth: int, start: float, weight: float, explore_every: int) -> None:
        self.acceptance, self.weight, self.explore_every = start, weight, explore_every
        self.times = RoundTimes(max_depth)
        self.idle_steps = 0

    def draft_depths(self, batch: Batch) -> Depths:
        """The depth with the highest estimated goodput."""
        if batch.sequences == 0:
            return 0
        tokens = (self.acceptance**self.times.depths).cumsum()
        best = int((tokens / self.times.uniform(batch)).argmax())
        self.idle_steps = 0 if best else self.idle_steps + 1
        if best == 0 and self.explore_every and self.idle_steps % self.explore_every == 0:
            return min(1, self.times.max_depth)
        return best

    def observe(self, outcome: Outcome) -> None:
        """Move the acceptance estimate towards this step's."""
        accepted = int(outcome.accepted.sum())
        tried = accepted + int((outcome.accepted < outcome.drafted).sum())
        if tried:
            self.acceptance += self.weight * (accepted / tried - self.acceptance)


class GoodputConfig(PolicyConfig):
    """Uniform depth maximising expected tokens per time (SmartSpec / TurboSpec)."""

    policy: Literal["goodput"]
    k_max: int = Field(default=7, ge=1, le=64, description="deepest depth considered")
    start: float = Field(default=0.7, gt=0, lt=1, description="acceptance assumed before any outcome")
    weight: float = Field(default=0.15, gt=0, le=1, description="weight of the newest step in the average")
    explore_every: int = Field(default=100, ge=0, description="depth-0 steps between probes; 0: never probe")

    def build(self, bounds: Bounds) -> Goodput:
        """The policy, its depth cut to what the engine allows."""
        return Goodput(min(self.k_max, bounds.max_depth), self.start, self.weight, self.explore_every)

    @property
    def depth(self) -> int:
        """The deepest depth considered."""
        return self.k_max
