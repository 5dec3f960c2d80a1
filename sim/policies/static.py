"""``static``: the same depth for every sequence in every step (every engine's default)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from sim.policies.by_batch import ByBatch
from sim.policies.config import Bounds, PolicyConfig


class Static(ByBatch):
    """Depth ``k``, always."""

    def __init__(self, k: int) -> None:
        self.k = k

    def depth_at(self, size: int) -> int:
        """The fixed depth."""
        return self.k


class StaticConfig(PolicyConfig):
    """Fixed depth k (vLLM ``num_speculative_tokens``, SGLang ``--speculative-num-steps``)."""

    policy: Literal["static"]
    k: int = Field(ge=0, le=64, description="draft tokens per sequence and step")

    def build(self, bounds: Bounds) -> Static:
        """The policy, its depth cut to what the engine allows."""
        return Static(min(self.k, bounds.max_depth))

    @property
    def depth(self) -> int:
        """The fixed depth."""
        return self.k
