"""Attention from the measured decode and context tables, as a sum of linear parts.

Per layer, in ns: ``floor + per_sequence * sequences + per_token * tokens + per_context *
context_tokens`` and, for the arithmetic, ``per_pair`` for each query-key pair, whether in a prefill
chunk or in a verify pass that is wider than one token. Where a kernel computes whole tiles of queries,
a wide pass pays the rows of a tile for each context token instead.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import duckdb
import numpy as np

from calibrate.compose.fits import Fit, relative_fit
from calibrate.compose.tables import AIC, AIC_LICENCE, Floats, Folders, Ledger, each, rows, significant
from calibrate.profile import Mark, Term, Variable
from calibrate.shapes import Attention, Sliding

DECODE_DOMAIN = "batch_size <= 512 AND isl + step BETWEEN 64 AND 32768"
CONTEXT_DOMAIN = "batch_size * isl <= 16384 AND isl >= 64"
KERNELS = {"b200_sxm": ("FlashInfer TRT-LLM", " AND kernel_source = 'vllm_flashinfer_trtllmprefill'")}
"""Kernel and its filter where a device's tables are not FlashAttention 3's (which need none)."""


@dataclass(frozen=True)
class AttentionCost:
    """ns per layer of each part, where it comes from and how it is marked."""

    floor: float
    per_sequence: float
    per_token: float
    per_context: float
    per_pair: float
    mark: Mark
    source: str
    tile_rows: int = 0
    """Query rows that each head computes per sequence of a wide pass, up to as many; 0: only its own."""

    def terms(self, attention: Attention) -> tuple[Term, Term]:
        """Decode and prefill terms of ``attention.layers`` layers.

        One decode token per sequence costs what the decode table says: the pair and token parts
        are taken out of the context and sequence parts, then paid per query token. In whole tiles
        that is paid by the tile, in wide passes alone.
        """
        layers = attention.layers
        decode = Term(
            name="attention_decode",
            mark=self.mark,
            source=self.source,
            fixed_ns=significant(layers * self.floor),
            per_ns={
                "sequences": significant(layers * max(0.0, self.per_sequence - self.per_token)),
                **{variable: significant(layers * ns) for variable, ns in self._context().items()},
            },
        )
        prefill = Term(
            name="attention_prefill",
            mark=self.mark,
            source=self.source,
            per_ns={
                "tokens": significant(layers * self.per_token),
                "prefill_pairs": significant(layers * self.per_pair),
            },
        )
        return decode, prefill

    def _context(self) -> dict[Variable, float]:
        """What each KV token that a verify pass attends to takes, in ns per layer."""
        if self.tile_rows:
            return {
                "context_tokens": self.per_context,
                "wide_context_tokens": self.tile_rows * self.per_pair,
            }
        return {
            "context_tokens": max(0.0, self.per_context - self.per_pair),
            "query_context_tokens": self.per_pair,
        }

    def tiled(self, rows: int) -> AttentionCost:
        """The same kernel where wide passes compute whole tiles of ``rows`` queries, head by head."""
        why = f"a wide pass computes tiles of {rows} queries a head (assumed)"
        return replace(self, tile_rows=rows, source=f"{self.source}; {why}")

    def scaled(self, bandwidth: float, compute: float, why: str) -> AttentionCost:
        """The same kernel on a device with ``bandwidth`` and ``compute`` times as much of each."""
        return AttentionCost(
            self.floor,
            self.per_sequence / bandwidth,
            self.per_token / bandwidth,
            self.per_context / bandwidth,
            self.per_pair / compute,
            "assumed",
            f"{why}; {self.source}",
        )


def attention_cost(folders: Folders, gpu: str, attention: Attention, ledger: Ledger) -> AttentionCost:
    """Fit the measured grids of exactly these heads (bf16 cache, no window); ``TableError`` if none."""
    decode = _decode(folders, gpu, attention, ledger)
    context = _context(folders, gpu, attention, ledger)
    floor, per_sequence, per_context = decode.coefficients
    _, per_token, per_pair = context.coefficients
    heads = f"{attention.heads}/{attention.kv_heads} heads of {attention.head_dim}"
    source = (
        f"aic-attention-{gpu} {heads}, x{attention.layers} layers. "
        f"Decode (batch <= 512, context 64..32768): {decode}. "
        f"Context (tokens <= 16384): {context}; pairs of wide verify passes at the context rate"
    )
    return AttentionCost(floor, per_sequence, per_token, per_context, per_pair, "composed", source)


def sliding_terms(
    folders: Folders, gpu: str, sliding: Sliding, ledger: Ledger, *, verifies: bool
) -> tuple[Term, Term]:
    """Decode and prefill terms of layers that see the last ``window`` tokens only.

    Beyond the window a decode row takes the same time at any context: that time is spread over the
    tokens of the window, so a shorter sequence pays its share (measured: 60 to 100 % of the whole at
    half the window). A drafter's terms have no windows: its rows pay the full one.
    """
    attention, window = sliding.attention, sliding.window
    decode = _decode(folders, gpu, attention, ledger, window)
    context = _context(folders, gpu, attention, ledger, window)
    floor, per_sequence, _ = decode.coefficients
    _, per_token, _ = context.coefficients
    source = (
        f"aic-attention-{gpu} {attention.heads}/{attention.kv_heads} heads of {attention.head_dim}, "
        f"window {window}, x{attention.layers} layers. Decode (batch <= 512, beyond the window): {decode}. "
        f"Context (beyond twice the window, tokens <= 16384): {context}; pairs of wide verify passes at "
        "the context rate"
    )
    layers, pair = attention.layers, min(per_token, per_sequence) / window
    rows_ns: dict[Variable, float] = {"sequences": layers * per_sequence}
    chunk_ns: dict[Variable, float] = {"tokens": layers * per_token}
    if verifies:
        rows_ns = {
            "window_context_tokens": layers * max(0.0, per_sequence / window - pair),
            "window_query_context_tokens": layers * pair,
        }
        chunk_ns = {"window_prefill_pairs": layers * per_token / window}
    fixed = significant(layers * floor)
    return (
        _term("attention_window_decode", source, rows_ns, fixed),
        _term("attention_window_prefill", source, chunk_ns),
    )


def _term(name: str, source: str, per_ns: dict[Variable, float], fixed_ns: float = 0.0) -> Term:
    per = {variable: significant(ns) for variable, ns in per_ns.items()}
    return Term(name=name, mark="composed", source=source, fixed_ns=fixed_ns, per_ns=per)


def _heads(attention: Attention, window: int, windows: bool) -> str:
    where = f"AND window_size = {window} " if windows else ""
    return (
        f"num_heads = {attention.heads} AND num_key_value_heads = {attention.kv_heads} "
        f"AND head_dim = {attention.head_dim} {where}AND kv_cache_dtype = 'bfloat16'"
    )


def _decode(folders: Folders, gpu: str, attention: Attention, ledger: Ledger, window: int = 0) -> Fit:
    path = folders.perf(gpu, "generation_attention")
    key = ledger.source(
        f"aic-attention-{gpu}-decode", path, f"{AIC}: decode attention, {_kernel(gpu)}, {gpu}", AIC_LICENCE
    )
    table = rows(
        path,
        "batch_size, isl + step AS context, latency AS ms",
        f"{_heads(attention, window, _has_windows(path))} AND {DECODE_DOMAIN} AND isl + step > {window}",
        "1, 2",
    )
    for row in each(table):
        ledger.keep("attention_decode", key, row.pop("ms"), **_shape(attention, window), **row)
    batch, context, measured = _floats(table, "batch_size", "context", "ms")
    growing = np.zeros_like(batch) if window else batch * context
    return relative_fit([np.ones_like(batch), batch, growing], measured * 1e6)


def _context(folders: Folders, gpu: str, attention: Attention, ledger: Ledger, window: int = 0) -> Fit:
    path = folders.perf(gpu, "context_attention")
    key = ledger.source(
        f"aic-attention-{gpu}-context", path, f"{AIC}: context attention, {_kernel(gpu)}, {gpu}", AIC_LICENCE
    )
    table = rows(
        path,
        "batch_size, isl, latency AS ms",
        f"{_heads(attention, window, _has_windows(path))} AND {CONTEXT_DOMAIN} "
        f"AND isl > {2 * window}{KERNELS.get(gpu, ('', ''))[1]}",
        "1, 2",
    )
    for row in each(table):
        ledger.keep("attention_context", key, row.pop("ms"), **_shape(attention, window), **row)
    batch, length, measured = _floats(table, "batch_size", "isl", "ms")
    pairs = np.zeros_like(batch) if window else batch * length * length / 2
    return relative_fit([np.ones_like(batch), batch * length, pairs], measured * 1e6)


def _kernel(gpu: str) -> str:
    return KERNELS.get(gpu, ("FA3", ""))[0]


def _has_windows(path: Path) -> bool:
    """Older tables have no column of windows: all their rows see everything."""
    found = duckdb.execute(f"DESCRIBE SELECT * FROM read_parquet('{path}')").fetchall()
    return any(name == "window_size" for name, *_ in found)


def _shape(attention: Attention, window: int) -> dict[str, int]:
    shape = {"heads": attention.heads, "kv_heads": attention.kv_heads, "head_dim": attention.head_dim}
    return {**shape, "window": window} if window else shape


def _floats(table: dict[str, Floats], *names: str) -> list[Floats]:
    return [table[name].astype(float) for name in names]
