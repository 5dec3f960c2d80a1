"""An attention profile in Vidur's format, made from a roofline.

The stored snapshot of Vidur holds no ``attention.csv`` (4 MiB and more each), and without one its
forests cannot be trained. What stands here sets only how long its simulated steps take; the work of
simulating them is Vidur's own.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Final

Q_HEADS: Final = 32  # meta-llama/Meta-Llama-3-8B, config.json
KV_HEADS: Final = 8
HEAD_DIM: Final = 128
BLOCK_SIZE: Final = 16
BYTES_PER_S: Final = 1.5e12  # 75 % of an A100 80GB's 2.0 TB/s (NVIDIA data sheet)
FLOPS_PER_S: Final = 156e12  # half of its 312 TFLOP/s in bf16 (the same)
LAUNCH_MS: Final = 0.01

CONTEXTS: Final = tuple(range(0, 4097, 128))
CHUNKS: Final = (1, 16, 32, 64, 96, *range(128, 1025, 64), *range(1152, 4097, 256))
BATCHES: Final = (1, 2, 4, 8, *range(16, 129, 8))


def write_attention(path: Path) -> None:
    """Write the profile of one Llama-3-8B layer on an A100, times in ms."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(next(_rows())))
        writer.writeheader()
        writer.writerows(_rows())


def decode_ms(batch: int, context: int) -> float:
    """Read the keys and values of ``batch`` sequences of ``context`` tokens once."""
    return LAUNCH_MS + 1e3 * batch * context * _kv_bytes() / BYTES_PER_S


def prefill_ms(context: int, chunk: int) -> float:
    """Causal attention of a chunk behind ``context`` tokens: 4 FLOP per head dimension and pair."""
    pairs = chunk * context + chunk * (chunk + 1) / 2
    return LAUNCH_MS + 1e3 * 4 * Q_HEADS * HEAD_DIM * pairs / FLOPS_PER_S


def save_ms(tokens: int) -> float:
    """Write the keys and values of ``tokens`` new tokens."""
    return LAUNCH_MS / 2 + 1e3 * tokens * _kv_bytes() / BYTES_PER_S


def _kv_bytes() -> int:
    return 2 * KV_HEADS * HEAD_DIM * 2


def _rows() -> Iterator[dict[str, float | int]]:
    for context in CONTEXTS:
        for batch in BATCHES:
            yield _row(batch, 0, context, decode=decode_ms(batch, context))
        for chunk in CHUNKS:
            yield _row(1, chunk, context, prefill=prefill_ms(context, chunk))


def _row(
    batch: int, chunk: int, context: int, decode: float = 0.0, prefill: float = 0.0
) -> dict[str, float | int]:
    return {
        "n_embd": Q_HEADS * HEAD_DIM,
        "n_q_head": Q_HEADS,
        "n_kv_head": KV_HEADS,
        "block_size": BLOCK_SIZE,
        "num_tensor_parallel_workers": 1,
        "batch_size": batch,
        "prefill_chunk_size": chunk,
        "kv_cache_size": context,
        "time_stats.attn_decode.median": decode,
        "time_stats.attn_prefill.median": prefill,
        "time_stats.attn_kv_cache_save.median": save_ms(max(batch, chunk)),
    }
