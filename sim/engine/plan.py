"""What the scheduler granted for one step, summed up for the costs and for acceptance."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sim.cost.graphs import MIXED
from sim.engine.batch import COMPUTED, GRANTED, KNOWN, Int64, RunningBatch


class Reads(NamedTuple):
    """KV tokens and query-key pairs of one step with every sequence cut to its last tokens.

    Fields are those of ``Plan``; ``prefill_pairs`` counts each query's own last tokens.
    """

    kv_tokens: int
    context: int
    query_context: int
    prefill_pairs: int


class Plan(NamedTuple):
    """What one step computes, after scheduling: sums, and arrays over the emitting sequences.

    ``emitters`` are their columns in the batch, ``None`` when every running sequence emits;
    ``verified`` the drafts verified for each. ``kv_tokens`` is the KV read by all sequences,
    ``context`` that of decoding ones. ``pads`` are drafts that nobody proposed, beside those verified;
    ``ghosts`` are sequences that ended already and are computed for nothing.
    ``window`` is what windowed layers read and ``drafter`` what the drafter does, where they read less.
    """

    sequences: int
    decodes: int
    tokens: int
    logits: int
    kv_tokens: int
    context: int
    query_context: int
    prefill_tokens: int
    prefill_pairs: int
    verified: Int64
    emitters: Int64 | None
    pads: int = 0
    window: Reads | None = None
    drafter: Reads | None = None
    ghosts: int = 0

    @property
    def uniform_depth(self) -> int:
        """Drafts of every sequence if all decode and have equally many, else ``MIXED``."""
        n = self.sequences
        if not n or self.decodes < n or len(self.verified) + self.ghosts < n or self.tokens % n:
            return MIXED
        depth = self.tokens // n - 1
        return depth if int(self.verified.max(initial=0)) == depth or len(self.verified) == 0 else MIXED


def decode_plan(batch: RunningBatch, pad_queries: bool) -> Plan:
    """Every sequence decodes and emits: one known token and its drafts each."""
    n = batch.n
    granted = batch.a[GRANTED, :n]
    tokens = int(np.add.reduce(granted))
    ends = batch.a[COMPUTED, :n] + granted
    context = int(np.add.reduce(ends))
    query_context = context if tokens == n else _query_context(granted, ends, pad_queries)
    return Plan(n, n, tokens, tokens, context, context, query_context, 0, 0, granted - 1, None)


def mixed_plan(batch: RunningBatch, pad_queries: bool) -> Plan:
    """Decodes beside prefill chunks, or sequences that got less than they wanted."""
    granted, known, computed = batch.row(GRANTED), batch.row(KNOWN), batch.row(COMPUTED)
    emitters = np.flatnonzero(granted >= known)
    verified = granted[emitters] - known[emitters]
    ends = (computed + granted) * (granted > 0)
    decode = (known == 1) & (granted > 0)
    chunk = np.where(decode, 0, granted)
    return Plan(
        sequences=int(np.count_nonzero(granted)),
        decodes=int(np.count_nonzero(decode)),
        tokens=int(granted.sum()),
        logits=int(verified.sum()) + len(emitters),
        kv_tokens=int(ends.sum()),
        context=int(ends[decode].sum()),
        query_context=_query_context(granted[decode], ends[decode], pad_queries),
        prefill_tokens=int(chunk.sum()),
        prefill_pairs=int((chunk * computed + chunk * (chunk + 1) // 2).sum()),
        verified=verified,
        emitters=emitters,
    )


def reads_within(batch: RunningBatch, limit: int, pad_queries: bool) -> Reads:
    """What the step reads where no query sees more than the last ``limit`` tokens."""
    granted, known, computed = batch.row(GRANTED), batch.row(KNOWN), batch.row(COMPUTED)
    ends = np.minimum(computed + granted, limit) * (granted > 0)
    decode = (known == 1) & (granted > 0)
    chunk = np.where(decode, 0, granted)
    pairs = _pairs_up_to(computed + chunk, limit) - _pairs_up_to(computed, limit)
    return Reads(
        kv_tokens=int(ends.sum()),
        context=int(ends[decode].sum()),
        query_context=_query_context(granted[decode], ends[decode], pad_queries),
        prefill_pairs=int(pairs.sum()),
    )


def _pairs_up_to(tokens: Int64, limit: int) -> Int64:
    """Query-key pairs of a prompt's first ``tokens``: the i-th reads the last ``limit`` of i."""
    near = np.minimum(tokens, limit)
    pairs: Int64 = near * (near + 1) // 2 + (tokens - near) * limit
    return pairs


def _query_context(granted: Int64, ends: Int64, padded: bool) -> int:
    """Query-key pairs of decodes, all as wide as the widest where queries are padded."""
    if padded:
        return int(granted.max(initial=0)) * int(ends.sum())
    return int(granted.dot(ends))
