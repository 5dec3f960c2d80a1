"""``disable_by_batch_size``: depth k below a batch size, no drafts at or above it.

Rule of vLLM V0 (``--speculative-disable-by-batch-size``; vllm/spec_decode/spec_decode_worker.py,
versions up to 0.9; removed in 2026): each step, all drafting is off when the running queue has at
least ``threshold`` requests. Granularity: whole batch, every step; no hysteresis. Input: the
number of running requests after scheduling. In V0 a disabled step runs no drafter at all; here that is
the engine's switch ``draft_at_depth_zero`` (off in ``ideal``, on in ``vllm_v1``).

Nor does V0's drafter write its own keys and values in a disabled step, so requests that lived through
one draft from a cache with holes afterwards. ``acceptance_loss`` says what share of acceptance that
costs them, where the engine runs no drafter at depth 0; nobody published it, so it is 0 unless stated.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from sim.policies.by_batch import BatchKey, ByBatch
from sim.policies.config import Bounds, PolicyConfig


class DisableByBatchSize(ByBatch):
    """Depth ``k`` while fewer than ``threshold`` requests run."""

    batch_key: BatchKey = "running"

    def __init__(self, k: int, threshold: int, acceptance_loss: float = 0.0) -> None:
        self.k, self.threshold, self.acceptance_loss = k, threshold, acceptance_loss

    def depth_at(self, size: int) -> int:
        """All or nothing, by the running queue's length."""
        return 0 if size >= self.threshold else self.k


class DisableByBatchSizeConfig(PolicyConfig):
    """Depth k while fewer than ``threshold`` requests run, else none (vLLM V0)."""

    policy: Literal["disable_by_batch_size"]
    k: int = Field(ge=1, le=64, description="draft tokens per sequence and step below the threshold")
    threshold: int = Field(ge=1, description="running requests from which drafting is off")
    acceptance_loss: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="share of acceptance lost by requests that saw a step without drafts",
    )

    def build(self, bounds: Bounds) -> DisableByBatchSize:
        """The policy, its depth cut to what the engine allows."""
        return DisableByBatchSize(min(self.k, bounds.max_depth), self.threshold, self.acceptance_loss)

    @property
    def depth(self) -> int:
        """The depth below the threshold."""
        return self.k

    @property
    def thresholds(self) -> tuple[int, ...]:
        """Batch sizes at which the depth changes, for the linter."""
        return (self.threshold,)
