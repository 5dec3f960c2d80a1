"""``per_batch_size``: the depth from a table over the batch size.

Rule of vLLM V1 (``num_speculative_tokens_per_batch_size``, PR #32374, vllm/v1/core/sched/
scheduler.py): rows ``[first, last, k]``, inclusive, ascending from 1, not overlapping; a gap and
everything past the last row keep the depth of the row before; depths are cut to the configured
maximum. The table is looked up each step with the number of scheduled requests, prefill chunks
included, and gives the depth of the drafts to produce (verified in the next step). Granularity:
whole batch, every step; no hysteresis. Inputs: that count. ``batch_key`` selects another one:
``sampling`` counts only sequences that will carry drafts (proposed in PR #51466), ``running`` all
admitted ones.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

from pydantic import Field, field_validator

from sim.policies.by_batch import BatchKey, ByBatch
from sim.policies.config import Bounds, PolicyConfig

Row = tuple[int, int, int]


def row_at(starts: Sequence[int], size: int) -> int:
    """The last row that starts at or below ``size`` (the first, below all of them)."""
    return max(bisect_right(starts, size) - 1, 0)


class PerBatchSize(ByBatch):
    """Depth looked up by batch size; ``table`` rows ascend from batch 1."""

    def __init__(self, table: tuple[Row, ...], max_depth: int, batch_key: BatchKey) -> None:
        self.starts = [first for first, _, _ in table]
        self.depths = [min(k, max_depth) for _, _, k in table]
        self.batch_key = batch_key

    def depth_at(self, size: int) -> int:
        """The row of a batch; an empty one counts as 1."""
        return self.depths[row_at(self.starts, size)]


class PerBatchSizeConfig(PolicyConfig):
    """Depth from a table of [first, last, k] rows over the batch size (vLLM V1 dynamic depth)."""

    policy: Literal["per_batch_size"]
    table: tuple[Row, ...] = Field(min_length=1, description="rows [first batch, last batch, k], inclusive")
    batch_key: BatchKey = Field(default="scheduled", description="scheduled, sampling or running requests")

    @field_validator("table")
    @classmethod
    def _rows_ascend_from_one(cls, table: tuple[Row, ...]) -> tuple[Row, ...]:
        expected = 1
        for row in table:
            first, last, k = row
            if expected == 1 and first != 1:
                raise ValueError(
                    f"first row {list(row)} must start at batch 1, as in [[1, 16, 5], [17, 64, 3]]"
                )
            if first < expected or last < first or k < 0:
                raise ValueError(f"row {list(row)} must ascend without overlap and have k >= 0")
            expected = last + 1
        return table

    def build(self, bounds: Bounds) -> PerBatchSize:
        """The policy, its depths cut to what the engine allows."""
        return PerBatchSize(self.table, bounds.max_depth, self.batch_key)

    @property
    def title(self) -> str:
        """Name in tables: the label, or the rows as ``first-last:k``."""
        rows = " ".join(f"{first}-{last}:{k}" for first, last, k in self.table)
        return self.label or f"{self.policy}({rows})"

    @property
    def depth(self) -> int:
        """The deepest row."""
        return max(k for _, _, k in self.table)

    @property
    def thresholds(self) -> tuple[int, ...]:
        """Batch sizes at which the depth changes, for the linter."""
        rows = self.table
        return tuple(b[0] for a, b in pairwise(rows) if a[2] != b[2])
