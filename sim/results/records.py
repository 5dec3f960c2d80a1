"""What a run writes down: one row per request, one row per step, in columns.

The engine appends rows; metrics, tables and files are computed from the columns afterwards, so
that nothing is measured in two places.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Final

import numpy as np
from numpy.typing import NDArray

REQUEST_COLUMNS: Final = (
    "request",  # number in order of intended arrival, from 0
    "class_id",
    "arrival_ns",  # intended arrival; latencies count from it
    "sent_ns",  # when the client sent it (later than arrival_ns only under max_concurrency)
    "scheduled_ns",  # first time in a step
    "first_token_ns",
    "finish_ns",
    "prompt_tokens",
    "output_tokens",
    "rounds",  # steps that verified at least one draft of it
    "drafted",  # draft tokens verified for it
    "accepted",  # drafts accepted, before the last round is trimmed at the output length
    "preemptions",
)

STEP_COLUMNS: Final = (
    "start_ns",
    "end_ns",
    "sequences",  # sequences scheduled in the step
    "decodes",  # of them, sequences that emitted tokens without prefill work
    "tokens",  # step tokens: decode rows k+1 each, and prefill chunks
    "logits",  # positions sampled or verified
    "context_tokens",  # KV tokens read by decoding sequences
    "query_context_tokens",
    "prefill_tokens",
    "prefill_pairs",
    "drafted",  # draft tokens verified
    "accepted",
    "emitted",  # output tokens, trimmed at the output length
    "depth",  # largest depth verified in the step
    "next_depth",  # largest depth chosen for the next drafts
    "draft_passes",  # sequential passes of the drafter in this step
    "draft_first_tokens",  # tokens in its first pass (0: it did not run)
    "draft_next_tokens",  # tokens in its further passes, all together
    "draft_context_tokens",  # KV tokens its passes read, all together
    "verify_ns",
    "accept_ns",
    "draft_ns",
    "host_ns",
    "waiting",  # requests waiting after scheduling
    "kv_blocks",  # blocks held after scheduling
    "preempted",  # sequences preempted in the step
    "graph",  # 1: the target pass fitted a captured graph
    "padded_tokens",  # tokens after padding to the captured size
)


class Table:
    """Growing columns of int64, 8 bytes a value, appended row by row."""

    def __init__(self, columns: tuple[str, ...]) -> None:
        self.columns = columns
        self._values = array("q")

    def append(self, row: Iterable[int]) -> None:
        """Append one row, values in the order of ``columns``."""
        self._values.extend(row)

    def __len__(self) -> int:
        return len(self._values) // len(self.columns)

    def to_arrays(self) -> dict[str, NDArray[np.int64]]:
        """One int64 array per column."""
        rows = np.frombuffer(self._values, dtype=np.int64).reshape(-1, len(self.columns))
        return {name: rows[:, i].copy() for i, name in enumerate(self.columns)}
