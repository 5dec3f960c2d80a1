"""``mlc_auto``: MLC-LLM's fixed steps from four drafts down to none.

Rule of MLC-LLM (cpp/serve/engine_actions/auto_spec_decode.cc at 00c44c3, ``CalculateDraftLength``):
each step, with n running requests, k = 4 for n < 10, 3 for n < 20, 2 for n < 30, else 0; and 0 if
n (k + 1) is more than ``max_num_sequence``. Granularity: whole batch, every step; no hysteresis.
Input: the requests that decode (MLC counts those past their prefill; here: that will carry drafts).
MLC's ``max_num_sequence`` is 4 in its default mode ``local``, 1 in ``interactive`` and what memory allows in
``server`` (python/mlc_llm/serve/config.py at 04e3805); here there is no such limit unless one is given.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

from pydantic import Field

from sim.policies.by_batch import BatchKey, ByBatch
from sim.policies.config import Bounds, PolicyConfig

_STEPS = ((10, 4), (20, 3), (30, 2))


def depth_for(n: int, max_num_sequence: int | None) -> int:
    """MLC's draft length for ``n`` decoding requests."""
    k = next((k for below, k in _STEPS if n < below), 0)
    return 0 if max_num_sequence is not None and n * (k + 1) > max_num_sequence else k


class MlcAuto(ByBatch):
    """Depth 4, 3, 2 or 0 by the number of decoding requests."""

    batch_key: BatchKey = "sampling"

    def __init__(self, max_depth: int, max_num_sequence: int | None) -> None:
        self.max_depth, self.max_num_sequence = max_depth, max_num_sequence

    def depth_at(self, size: int) -> int:
        """MLC's step; nothing for an empty batch."""
        return min(depth_for(size, self.max_num_sequence), self.max_depth) if size else 0


class MlcAutoConfig(PolicyConfig):
    """Depth 4, 3, 2 or 0 below 10, 20, 30 or more requests (MLC-LLM's automatic mode)."""

    policy: Literal["mlc_auto"]
    max_num_sequence: int | None = Field(
        default=None, ge=1, description="no drafts where requests x (k + 1) exceeds this"
    )

    def build(self, bounds: Bounds) -> MlcAuto:
        """The policy, its depths cut to what the engine allows."""
        return MlcAuto(bounds.max_depth, self.max_num_sequence)

    @property
    def depth(self) -> int:
        """The deepest step."""
        return depth_for(1, self.max_num_sequence)

    @property
    def thresholds(self) -> tuple[int, ...]:
        """Batch sizes at which the depth changes, for the linter."""
        sizes = range(1, _STEPS[-1][0] + 1)
        depths = [depth_for(n, self.max_num_sequence) for n in sizes]
        return tuple(n + 1 for n, (a, b) in zip(sizes, pairwise(depths), strict=False) if a != b)
