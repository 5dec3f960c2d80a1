"""``p_min``: stop drafting at the first token that the drafter finds improbable.

Rule of llama.cpp (``--draft-p-min``, ``--draft-min``, ``--draft-max``; common/speculative.cpp and
common/common.h, read in a tree of mid 2026): tokens are drafted one after the other up to ``k_max``;
the first whose probability is below ``p_min`` ends the draft and is itself thrown away, though its
pass is paid; what is left is dropped whole when it is shorter than ``n_min``. On a block drafter the
same rule only cuts what is verified (DFlash and DSpark in llama.cpp; ``confidence_threshold`` of
DeepSpec, deepspec/eval/dspark/draft_ops.py at afdfa7c). The load plays no part.

**Granularity**: per token. **Inputs**: confidences alone.

Departures: the drafter's claim stands for its top probability, which llama.cpp takes as it is, from
the drafter's few best candidates. Defaults are those of earlier trees (0.75 and 16), which kept and
verified the token below ``p_min``, too; the tree read has 0.0, which never stops, and 3.
"""

from __future__ import annotations

from typing import Literal, Self

import numpy as np
from pydantic import Field, model_validator

from sim.policies.base import Batch, Claims, Depths, PolicyDefaults
from sim.policies.config import Bounds, PolicyConfig
from sim.policies.stopping import before_first, through_first


class PMin(PolicyDefaults):
    """Drafts until a probability falls below ``p_min``; verifies the tokens before it."""

    wants_confidence = True

    def __init__(self, k_max: int, p_min: float, n_min: int = 0) -> None:
        self.k_max, self.p_min, self.n_min = k_max, p_min, n_min

    def draft_depths(self, batch: Batch) -> Depths:
        """As deep as allowed."""
        return self.k_max

    def stop_depths(self, batch: Batch, depths: Depths, confidence: Claims) -> Depths:
        """Up to and with the first improbable token."""
        return through_first(confidence < self.p_min, depths)

    def verify_depths(self, batch: Batch, depths: Depths, confidence: Claims) -> Depths:
        """The tokens before it, or none if they are fewer than ``n_min``."""
        kept = np.minimum(before_first(confidence < self.p_min), depths)
        return np.where(kept < self.n_min, 0, kept)


class PMinConfig(PolicyConfig):
    """Stop drafting at the first token below a probability (llama.cpp --draft-p-min)."""

    policy: Literal["p_min"]
    k_max: int = Field(default=16, ge=1, le=64, description="longest draft (--draft-max)")
    p_min: float = Field(default=0.75, ge=0, le=1, description="lowest probability that is kept")
    n_min: int = Field(default=0, ge=0, le=64, description="shorter drafts are dropped (--draft-min)")

    @model_validator(mode="after")
    def _some_draft_is_long_enough(self) -> Self:
        if self.n_min > self.k_max:
            raise ValueError(f"n_min {self.n_min} is above k_max {self.k_max}: every draft would be dropped")
        return self

    def build(self, bounds: Bounds) -> PMin:
        """The policy, its depth cut to what the engine allows."""
        return PMin(min(self.k_max, bounds.max_depth), self.p_min, self.n_min)

    @property
    def depth(self) -> int:
        """The longest draft."""
        return self.k_max
