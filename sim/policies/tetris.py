"""``tetris``: a fixed number of drafts per step, the likeliest of the batch.

Rule of TETRIS (arXiv 2502.15197; ZhaoxuanWu/Tetris at 1eb8898, vllm/spec_decode/tetris.py and
spec_decode_worker.py): ``extra`` more drafts are proposed for every sequence than the engine can verify;
of all of them the C with the largest cumulative draft probability are verified. C is ``capacity``, or
``k`` drafts per sequence of the batch, as in the authors' code.

**Granularity**: per token; every step. **Inputs**: confidences alone; load only through the batch size.

Lossless for confidences known before the token is drawn, for any capacity. The authors rank by the
probability of the very token drawn: then a token's own luck decides whether it is verified, which
shifts the output under sampling (not under greedy drafting). Our confidences are of the first kind.

Departures: the authors' batch size from which the rule is switched on is left out (it is always on).
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from sim.policies.base import Batch, Claims, Depths, PolicyDefaults
from sim.policies.budget import spend, survival
from sim.policies.config import Bounds, PolicyConfig


class Tetris(PolicyDefaults):
    """The likeliest drafts of the batch, as many as the capacity allows."""

    wants_confidence = True

    def __init__(self, max_depth: int, k: int, capacity: int | None) -> None:
        self.max_depth, self.k, self.capacity = max_depth, k, capacity

    def draft_depths(self, batch: Batch) -> Depths:
        """What is to be chosen from."""
        return self.max_depth

    def verify_depths(self, batch: Batch, depths: Depths, confidence: Claims) -> Depths:
        """The likeliest drafts within the capacity."""
        capacity = self.k * batch.sequences if self.capacity is None else self.capacity
        return spend(survival(confidence[:, : self.max_depth]), capacity)


class TetrisConfig(PolicyConfig):
    """Fixed number of drafts per step, the likeliest of the batch (TETRIS)."""

    policy: Literal["tetris"]
    k: int = Field(default=3, ge=1, le=64, description="drafts per sequence that can be verified")
    extra: int = Field(default=2, ge=0, le=63, description="drafts proposed beyond k, to choose from")
    capacity: int | None = Field(
        default=None, ge=0, description="drafts verified per step; default: k for every sequence"
    )

    def build(self, bounds: Bounds) -> Tetris:
        """The policy, its depth cut to what the engine allows."""
        return Tetris(min(self.k + self.extra, bounds.max_depth), self.k, self.capacity)

    @property
    def depth(self) -> int:
        """The drafts proposed."""
        return self.k + self.extra
