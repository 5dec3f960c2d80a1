"""``batch_profile``: the best depth for each batch size, fixed before the run by a profile.

Rule of Su, Giannoula and Pekhimenko 2023 (arXiv 2310.18813): the speculation length that took the least
time per token in offline runs, looked up by batch size. Their runs are replaced by their model of them: a
round with s drafts yields 1 + l(s) tokens per request, with l(s) = ``c`` s^``g`` accepted drafts (at most
s), and takes a time that depends on batch and s; the depth is the one from 0 to ``k_max`` with the most
tokens per time. The time comes from the cost tables at ``context`` tokens per request. With ``alpha`` the
accepted drafts are alpha + ... + alpha^s instead. Granularity: whole batch, every step. Inputs: batch
size; neither the true context nor any outcome.

The abstract is what was read; the law of accepted drafts and its constants (0.9, 0.548) are from memory of
the paper. The paper profiles some batch sizes, this table has every one.
"""

from __future__ import annotations

from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from sim.cost.step_cost import StepCost
from sim.policies.base import Batch, Depths, PolicyDefaults
from sim.policies.config import Bounds, PolicyConfig

Float = NDArray[np.float64]


def accepted_by_power(depths: Float, c: float, g: float) -> Float:
    """Accepted drafts of ``depths``: c s^g, at most s."""
    return np.minimum(c * depths**g, depths)


def accepted_by_rate(depths: Float, alpha: float) -> Float:
    """Accepted drafts of ``depths`` 0, 1, ... when each passes with probability ``alpha``."""
    return np.cumsum(alpha**depths) - 1


class BatchProfile(PolicyDefaults):
    """Depth looked up by batch size; ``accepted`` are the drafts accepted at depth 0, 1, ..."""

    def __init__(self, accepted: Float, context: int) -> None:
        self.tokens, self.context = 1 + accepted, context
        self.depths = np.arange(len(accepted))
        self._cost: StepCost | None = None
        self._table: dict[int, int] = {}

    def draft_depths(self, batch: Batch) -> Depths:
        """One look-up for the whole batch; nothing for an empty one."""
        if batch.cost is not self._cost:
            self._cost, self._table = batch.cost, {}
        n = batch.sequences
        if n not in self._table:
            self._table[n] = self._profiled(batch.cost, n) if n else 0
        return self._table[n]

    def _profiled(self, cost: StepCost, n: int) -> int:
        """The depth with the most tokens per time at batch size ``n``."""
        return int((self.tokens / cost.round_ns(n, self.depths, n * self.context)).argmax())


class BatchProfileConfig(PolicyConfig):
    """Best depth per batch size from the cost tables and a stated acceptance (Su et al. 2023)."""

    policy: Literal["batch_profile"]
    k_max: int = Field(default=7, ge=1, le=64, description="deepest depth considered")
    context: int = Field(default=512, ge=1, description="context tokens per request in the profile")
    c: float = Field(default=0.9, gt=0, le=1, description="accepted drafts at depth 1")
    g: float = Field(default=0.548, gt=0, le=1, description="power by which they grow with depth")
    alpha: float | None = Field(
        default=None, gt=0, lt=1, description="acceptance per token, instead of c and g"
    )

    @model_validator(mode="after")
    def _one_law(self) -> Self:
        given = self.model_fields_set & {"c", "g"}
        if self.alpha is not None and given:
            raise ValueError(f"alpha takes the place of {' and '.join(sorted(given))}; give one law")
        return self

    def build(self, bounds: Bounds) -> BatchProfile:
        """The policy, its depth cut to what the engine allows."""
        depths = np.arange(min(self.k_max, bounds.max_depth) + 1, dtype=np.float64)
        if self.alpha is None:
            return BatchProfile(accepted_by_power(depths, self.c, self.g), self.context)
        return BatchProfile(accepted_by_rate(depths, self.alpha), self.context)

    @property
    def depth(self) -> int:
        """The deepest depth considered."""
        return self.k_max
