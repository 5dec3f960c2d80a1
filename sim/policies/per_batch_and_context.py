"""``per_batch_and_context``: the depth from a grid over batch size and mean context.

Rule proposed for vLLM V1 (RFC #48627; PR #48944, vllm/v1/spec_decode/dynamic/utils.py and
vllm/v1/core/sched/scheduler.py at 14b450c; open, so it may change): rows ``[first batch, last batch,
first context, last context, k]``, inclusive, that form a full grid: every batch range has the same
context ranges. Batch ranges ascend from 1 without overlap; a gap and everything past the last keep
the depths of the range before. Context ranges ascend from 1 and have no gaps; the last one has no
end. Depths are cut to the configured maximum. Granularity: whole batch, every step; no hysteresis.
Inputs: scheduled requests, prefill chunks included, and the mean context, rounded down (``context``
selects ``max`` or ``median``, as there).

There the mean is taken over scheduled requests past their prompt, before the step's tokens are
counted; here over the sequences that will carry drafts, after them: at most one round longer. With no
such sequence the PR takes the prefills' contexts, and this policy the first context range.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import numpy as np
from pydantic import Field, field_validator

from sim.policies.base import Batch, Depths, Int64, PolicyDefaults
from sim.policies.by_batch import BatchKey, counted
from sim.policies.config import Bounds, PolicyConfig
from sim.policies.per_batch_size import row_at

ContextKey = Literal["mean", "median", "max"]
Cell = tuple[int, int, int, int, int]
Range = tuple[int, int]


class PerBatchAndContext(PolicyDefaults):
    """Depth looked up by batch size and context; ``table`` is a full grid."""

    def __init__(
        self, table: tuple[Cell, ...], max_depth: int, batch_key: BatchKey, context: ContextKey
    ) -> None:
        batches, contexts = axes(table)
        self.starts = [first for first, _ in batches]
        self.ends = [last for _, last in contexts[:-1]]
        depth = {(row[0], row[2]): min(row[4], max_depth) for row in table}
        self.depths = [[depth[start, first] for first, _ in contexts] for start in self.starts]
        self.batch_key, self.context = batch_key, context

    def draft_depths(self, batch: Batch) -> Depths:
        """One look-up for the whole batch."""
        column = bisect_left(self.ends, summed_up(batch.context_tokens, self.context))
        return self.depths[row_at(self.starts, counted(batch, self.batch_key))][column]


def summed_up(context: Int64, key: ContextKey) -> int:
    """One context length for a batch, whole tokens; 0 for an empty batch."""
    n = len(context)
    if n == 0:
        return 0
    if key == "mean":
        return int(context.sum()) // n
    return int(context.max()) if key == "max" else int(np.partition(context, n // 2)[n // 2])


def axes(table: Sequence[Cell]) -> tuple[list[Range], list[Range]]:
    """Batch and context ranges of a grid, rising."""
    return sorted({row[:2] for row in table}), sorted({row[2:4] for row in table})


def _check_ranges(ranges: Sequence[Range], what: str, gaps: bool) -> None:
    """Ranges rise from 1 without overlap, and without gaps unless those are allowed."""
    if ranges[0][0] != 1:
        raise ValueError(f"the first {what} range {list(ranges[0])} must start at 1")
    for first, last in ranges:
        if last < first:
            raise ValueError(f"the {what} range [{first}, {last}] must not end before it starts")
    for before, after in pairwise(ranges):
        if after[0] <= before[1]:
            raise ValueError(f"{what} ranges {list(before)} and {list(after)} overlap")
        if after[0] > before[1] + 1 and not gaps:
            raise ValueError(
                f"between {what} ranges {list(before)} and {list(after)} there is a gap; close it"
            )


class PerBatchAndContextConfig(PolicyConfig):
    """Depth from [first, last batch, first, last context, k] rows (vLLM RFC #48627)."""

    policy: Literal["per_batch_and_context"]
    table: tuple[Cell, ...] = Field(
        min_length=1, description="rows [first batch, last batch, first context, last context, k], inclusive"
    )
    batch_key: BatchKey = Field(default="scheduled", description="scheduled, sampling or running requests")
    context: ContextKey = Field(default="mean", description="mean, median or max of the contexts")

    @field_validator("table")
    @classmethod
    def _full_grid(cls, table: tuple[Cell, ...]) -> tuple[Cell, ...]:
        batches, contexts = axes(table)
        if len(table) != len(batches) * len(contexts) or len({row[:4] for row in table}) != len(table):
            raise ValueError(
                f"{len(table)} rows are no grid of {len(batches)} batch by {len(contexts)} context ranges; "
                "give each batch range the same context ranges, once"
            )
        _check_ranges(batches, "batch", gaps=True)
        _check_ranges(contexts, "context", gaps=False)
        if min(row[4] for row in table) < 0:
            raise ValueError("every k must be 0 or more")
        return table

    def build(self, bounds: Bounds) -> PerBatchAndContext:
        """The policy, its depths cut to what the engine allows."""
        return PerBatchAndContext(self.table, bounds.max_depth, self.batch_key, self.context)

    @property
    def title(self) -> str:
        """Name in tables: the label, or the rows as ``batches x contexts:k``."""
        rows = " ".join(f"{a}-{b}x{c}-{d}:{k}" for a, b, c, d, k in self.table)
        return self.label or f"{self.policy}({rows})"

    @property
    def depth(self) -> int:
        """The deepest cell."""
        return max(row[4] for row in self.table)

    @property
    def thresholds(self) -> tuple[int, ...]:
        """Batch sizes at which the depth changes at some context, for the linter."""
        batches, _ = axes(self.table)
        column = {first: [row[4] for row in sorted(self.table) if row[0] == first] for first, _ in batches}
        return tuple(b[0] for a, b in pairwise(batches) if column[a[0]] != column[b[0]])
