"""What a run writes down: one row per request, one row per step, in columns.

The engine appends rows; metrics, tables and files are computed from the columns afterwards, so
that nothing is measured in two places.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray


class RequestRow(NamedTuple):
    """One finished request."""

    request: int  # number in order of intended arrival, from 0
    class_id: int
    arrival_ns: int  # intended arrival; latencies count from it
    sent_ns: int  # when the client sent it (later than arrival_ns only under max_concurrency)
    scheduled_ns: int  # first time in a step
    first_token_ns: int
    finish_ns: int
    prompt_tokens: int
    output_tokens: int
    rounds: int  # steps that verified at least one draft of it
    drafted: int  # draft tokens verified for it
    accepted: int  # drafts accepted, before the last round is trimmed at the output length
    preemptions: int


class StepRow(NamedTuple):
    """One step of the engine."""

    start_ns: int
    end_ns: int
    sequences: int  # sequences scheduled in the step
    decodes: int  # of them, sequences that emitted tokens without prefill work
    tokens: int  # step tokens: decode rows k+1 each, and prefill chunks
    logits: int  # positions sampled or verified
    context_tokens: int  # KV tokens read by decoding sequences
    query_context_tokens: int
    prefill_tokens: int
    prefill_pairs: int
    drafted: int  # draft tokens verified
    accepted: int
    emitted: int  # output tokens, trimmed at the output length
    depth: int  # largest depth verified in the step
    next_depth: int  # largest depth chosen for the next drafts
    draft_passes: int  # sequential passes of the drafter in this step
    draft_first_tokens: int  # tokens in its first pass (0: it did not run)
    draft_next_tokens: int  # tokens in its further passes, all together
    draft_context_tokens: int  # KV tokens its passes read, all together
    verify_ns: int
    accept_ns: int
    draft_ns: int
    host_ns: int
    waiting: int  # requests waiting after scheduling
    kv_blocks: int  # blocks held after scheduling
    preempted: int  # sequences preempted in the step
    graph: int  # how the target pass ran: 1 in a captured graph, 2 in captured pieces, 0 eagerly
    padded_tokens: int  # tokens after padding to the captured size


REQUEST_COLUMNS: Final = RequestRow._fields
STEP_COLUMNS: Final = StepRow._fields
WINDOW_COLUMNS: Final = ("window_context_tokens", "window_query_context_tokens", "window_prefill_pairs")
"""What windowed layers read; only in steps of models that have some."""
HOST_COLUMNS: Final = ("hidden_ns", "grammar_ns", "depth_zero_ns")
"""Host time hidden behind the device (beside ``host_ns``), and parts of all host time; only where in use."""


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
