"""``dspark``: the likeliest drafts of the batch, for as long as each raises the expected throughput.

Rule of DSpark (arXiv 2607.05147): with ``a`` a draft's survival, the drafts of all sequences are taken
in falling order of ``a``; with B = step tokens and tau = expected tokens, the aim is to make
``Theta = tau * SPS(B)`` large, SPS(B) being steps per second as profiled at start.

- ``variant: algorithm_1`` (section 3.2.2, Algorithm 1): drafts are added one by one; the first that does
  not raise Theta ends it. That is the best B where Theta has one peak. Where SPS is a staircase it is no
  good: with captured graphs it stops in front of the next graph, at full batches before the first draft.
- ``variant: production`` (section 5.2): the number of drafts K is the best over all B, without early
  stop, for the survivals of two steps ago (1 for requests that had none); then the K likeliest drafts of
  this step are verified.

Both are lossless: K comes from the past, or is settled draft by draft (appendix A). K from *this* step's
confidences would not be. ``least`` drafts of every sequence are verified in any case (0 in the paper and,
counted without the bonus token, in SGLang; 1 in TensorRT-LLM). With ``min_gain`` everything is verified
unless trimming promises to be better by that share (TensorRT-LLM: 0.04); it weighs all of a step's
confidences, so only ``production`` takes it.

**Granularity**: per token; every step. **Inputs**: confidences, and SPS, which knows nothing of batch
size, context or drafting time (the paper says as much of the last).

Read for it: the paper; SGLang python/sglang/srt/speculative/dspark_components/dspark_scheduler.py at
692c5f7 (the argmax, the order of equals); TensorRT-LLM tensorrt_llm/_torch/speculative/
dspark_planner.py at 52cd02d (``least``, ``min_gain``). Departures: SPS is the target pass from the
engine's cost tables, with sampling and host time; B tokens stand for B / (k_max + 1) full blocks, each
over ``profile_context`` tokens, which the paper leaves open (2048 is what SGLang profiles D-Cut at).
Steps are counted in the request's own.
"""

from __future__ import annotations

from typing import Literal, Self

import numpy as np
from pydantic import Field, model_validator

from sim.policies.base import Batch, Claims, Depths, PolicyDefaults
from sim.policies.budget import Float, Past, Profile, Survival, expected_tokens, spend, survival
from sim.policies.config import Bounds, PolicyConfig

Variant = Literal["algorithm_1", "production"]


class DSpark(PolicyDefaults):
    """Full drafts, of which the batch verifies the likeliest as long as throughput rises."""

    wants_confidence = True

    def __init__(
        self, max_depth: int, variant: Variant, profile_context: int, least: int, min_gain: float
    ) -> None:
        self.max_depth, self.variant, self.least, self.min_gain = max_depth, variant, least, min_gain
        self.profile = Profile(max_depth, profile_context)
        self.past = Past(max_depth, lag=2)

    def draft_depths(self, batch: Batch) -> Depths:
        """The whole block."""
        return self.max_depth

    def verify_depths(self, batch: Batch, depths: Depths, confidence: Claims) -> Depths:
        """The likeliest drafts, as many as the rule allows."""
        if batch.sequences == 0 or self.max_depth == 0:
            return 0
        survive = survival(confidence[:, : self.max_depth])
        if self.variant == "algorithm_1":
            drafts = until_it_falls(self._theta(batch, survive, depths))
        else:
            drafts = self._best(
                self._theta(batch, self.past.exchange(batch.request, survive, depths), depths)
            )
        return spend(survive, drafts, self.least)

    def _theta(self, batch: Batch, survive: Survival, depths: Depths) -> Float:
        """Expected tokens per second with 0, 1, 2, ... drafts beyond those verified in any case."""
        tokens = expected_tokens(survive, self.least)
        always = np.broadcast_to(np.minimum(depths, self.least), batch.sequences).sum()
        step_tokens = batch.sequences + int(always) + np.arange(len(tokens))
        return tokens * (1e9 / self.profile.ns(batch.cost).take(step_tokens, mode="clip"))

    def _best(self, theta: Float) -> int:
        """The argmax, or all where it is not better than all by ``min_gain``."""
        best = int(theta.argmax())
        return best if theta[best] >= theta[-1] * (1 + self.min_gain) else len(theta) - 1


def until_it_falls(theta: Float) -> int:
    """Index of the last value before the first that does not exceed its predecessor."""
    return int(np.append(theta[1:] <= theta[:-1], True).argmax())


class DSparkConfig(PolicyConfig):
    """Likeliest drafts of the batch while expected throughput rises (DSpark)."""

    policy: Literal["dspark"]
    k_max: int = Field(default=7, ge=1, le=64, description="drafts proposed for every sequence (gamma)")
    variant: Variant = Field(default="production", description="a budget from two steps ago, or early stop")
    profile_context: int = Field(
        default=2048, ge=0, description="KV tokens of a sequence when steps per second are profiled"
    )
    least: int = Field(default=0, ge=0, le=64, description="drafts of every sequence verified in any case")
    min_gain: float = Field(
        default=0.0, ge=0, description="gain that trimming must promise (production only); 0.04: 4 %"
    )

    @model_validator(mode="after")
    def _gain_needs_a_budget_from_the_past(self) -> Self:
        if self.min_gain and self.variant != "production":
            raise ValueError(
                f"min_gain {self.min_gain} weighs all confidences of a step, which leaks drafts into what is "
                "verified unless they are of the past; set variant: production"
            )
        return self

    def build(self, bounds: Bounds) -> DSpark:
        """The policy, its depth cut to what the engine allows."""
        depth = min(self.k_max, bounds.max_depth)
        return DSpark(depth, self.variant, self.profile_context, self.least, self.min_gain)

    @property
    def depth(self) -> int:
        """The whole block."""
        return self.k_max
