"""What a step computes and moves: FLOPs and bytes, from its shape and the models' work.

Counted, not timed: every token of a pass costs 2 FLOPs per active parameter and attention; every
pass reads the weights once (of routed experts, those that its tokens touch when routing is
uniform: E (1 - (1 - k/E)^n), MoESD, arXiv 2505.19645), reads the KV of its sequences (of windowed
layers what lies in the window) and writes that of its tokens, reads one recurrent state per
sequence and writes one per verified position. Padding, activations and prefill's re-reading of its
own prefix are left out.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from calibrate.profile import Drafter, ModelWork, Profile

Float = NDArray[np.float64]
Columns = Mapping[str, NDArray[np.int64]]


def step_flops(steps: Columns, profile: Profile, drafter: Drafter | None) -> Float:
    """FLOPs of every step: target pass and, if it ran, the drafter's passes."""
    work = profile.target.work
    pairs = steps["query_context_tokens"] + steps["prefill_pairs"]
    flops = work.flops_per_token * steps["tokens"] + work.attention_flops_per_query_context * pairs
    if work.window_attention_flops_per_query_context and "window_prefill_pairs" in steps:
        near = steps["window_query_context_tokens"] + steps["window_prefill_pairs"]
        flops = flops - work.window_attention_flops_per_query_context * (pairs - near)
    if drafter is not None and drafter.work is not None:
        own = drafter.work
        flops = flops + own.flops_per_token * draft_tokens(steps, drafter)
        flops = flops + own.attention_flops_per_query_context * steps["draft_context_tokens"]
    return np.asarray(flops, dtype=np.float64)


def step_bytes(steps: Columns, profile: Profile, drafter: Drafter | None) -> Float:
    """Bytes read from and written to device memory in every step."""
    work = profile.target.work
    moved = weight_bytes(work, steps["tokens"]) + work.kv_bytes_per_token * (
        steps["context_tokens"] + steps["tokens"]
    )
    if work.window_kv_bytes_per_token and "window_context_tokens" in steps:
        beyond = steps["context_tokens"] - steps["window_context_tokens"]
        moved = moved - work.window_kv_bytes_per_token * beyond
    moved = moved + work.state_bytes_per_sequence * (
        steps["sequences"] + np.maximum(steps["logits"], steps["sequences"])
    )
    if drafter is not None and drafter.work is not None:
        own = drafter.work
        moved = moved + own.read_bytes * steps["draft_passes"]
        passed = draft_tokens(steps, drafter)
        moved = moved + own.kv_bytes_per_token * (steps["draft_context_tokens"] + passed)
        ran = steps["sequences"] * (steps["draft_first_tokens"] > 0) + steps["draft_next_tokens"]
        moved = moved + 2 * own.state_bytes_per_sequence * ran
    return np.asarray(moved, dtype=np.float64)


def draft_tokens(steps: Columns, drafter: Drafter) -> NDArray[np.int64]:
    """Tokens that go through the drafter in every step, its block's included."""
    block = steps["sequences"] * drafter.block_tokens * (steps["draft_first_tokens"] > 0)
    return np.asarray(steps["draft_first_tokens"] + steps["draft_next_tokens"] + block)


def weight_bytes(work: ModelWork, tokens: NDArray[np.int64]) -> Float:
    """Weights that a pass of ``tokens`` tokens reads."""
    read = np.where(tokens > 0, work.read_bytes, 0.0)
    if work.experts is None:
        return read
    e = work.experts
    touched = e.count * (1 - (1 - e.active / e.count) ** tokens)
    return np.asarray(read + e.layers * e.bytes_each * touched)
