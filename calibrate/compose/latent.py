"""Multi-head latent attention (DeepSeek) from the measured block: projections and attention in one.

The tables time the whole attention block of a layer (every projection of it, the products that absorb
the up-projection, attention over the latent cache). Decode rows give a curve over tokens at the
shortest context and a slope per context token; the context grid gives the curve beyond
the largest decode batch and the cost of prefill pairs.
"""

from __future__ import annotations

import numpy as np

from calibrate.compose.fits import Fit, relative_fit
from calibrate.compose.tables import AIC, AIC_LICENCE, Floats, Folders, Ledger, each, rows, significant
from calibrate.profile import Curve, Term
from calibrate.shapes import Attention

PROJECTIONS = ("qkv_a", "q_b", "kv_b", "attention_out")
"""Products that the block holds: they are not among a pass's other products."""

SHORTEST = 128
"""Context of the rows that make the curve over tokens."""
DECODE_DOMAIN = "kv_cache_dtype = 'bfloat16' AND step BETWEEN 128 AND 32768 AND batch_size <= 512"
CONTEXT_DOMAIN = "kv_cache_dtype = 'bfloat16' AND batch_size * isl <= 16384 AND isl >= 64"
PREFILL_DIMS = 192 + 128
"""Numbers scored and summed per head and pair at prefill, where the up-projection is not absorbed."""
BEYOND = (2048, 4096, 8192)


def latent_terms(
    folders: Folders, gpu: str, attention: Attention, dtype: str, ledger: Ledger
) -> tuple[Term, Term]:
    """The attention block of every layer: what tokens and context take, and what prefill pairs take.

    A verify pass that is wider than one token reads its context once; its arithmetic is the prefill
    pair's, times how many more numbers the absorbed form scores and sums (assumed).
    """
    x, ns, decode = _decode(folders, gpu, attention, dtype, ledger)
    context = _context(folders, gpu, attention, dtype, ledger)
    _, per_token, per_pair = context.coefficients
    per_context = decode.coefficients[1]
    wide = per_pair * (attention.head_dim + attention.latent) / PREFILL_DIMS
    beyond = [ns[-1] + per_token * (n - x[-1]) for n in BEYOND]
    layers = attention.layers
    source = (
        f"aic-mla-{gpu} {attention.heads} heads, {dtype} projections, x{layers} layers. Context tokens "
        f"(batch <= 512, 128..32768, beyond the block at {SHORTEST}): {decode}. "
        f"Context grid (tokens <= 16384): {context}"
    )
    total = [significant(layers * value) for value in (*ns, *beyond)]
    block = Term(
        name="attention_latent",
        mark="composed",
        source=f"{source}; above {x[-1]:.0f} tokens the context grid's slope; wide passes: assumed",
        curve=Curve(x=(*(int(n) for n in x), *BEYOND), ns=tuple(total)),
        per_ns={
            "context_tokens": significant(layers * max(0.0, per_context - wide)),
            "query_context_tokens": significant(layers * min(wide, per_context)),
        },
    )
    prefill = Term(
        name="attention_prefill",
        mark="composed",
        source=source,
        per_ns={"prefill_pairs": significant(layers * per_pair)},
    )
    return block, prefill


def _decode(
    folders: Folders, gpu: str, attention: Attention, dtype: str, ledger: Ledger
) -> tuple[Floats, Floats, Fit]:
    """Tokens, ns of the block at the shortest context, and the fit of what longer contexts add."""
    path = folders.perf(gpu, "mla_generation_module")
    key = ledger.source(
        f"aic-mla-{gpu}-decode", path, f"{AIC}: latent attention block, decode, {gpu}", AIC_LICENCE
    )
    table = rows(
        path,
        "batch_size, step AS context, min(latency) AS ms",
        f"{DECODE_DOMAIN} AND num_heads = {attention.heads} AND gemm_type = '{dtype}' GROUP BY 1, 2",
        "1, 2",
    )
    for row in each(table):
        ledger.keep(
            "mla_decode",
            key,
            row["ms"],
            heads=attention.heads,
            batch=row["batch_size"],
            context=row["context"],
        )
    batch, context, ns = (table[name].astype(float) for name in ("batch_size", "context", "ms"))
    ns = ns * 1e6
    short = context == SHORTEST
    x, base = batch[short], np.maximum.accumulate(ns[short])
    longer = ~short & np.isin(batch, x)
    at = np.interp(batch[longer], x, base)
    read = batch[longer] * (context[longer] - SHORTEST)
    fit = relative_fit([at, read], ns[longer])
    return x, base - fit.coefficients[1] * x * SHORTEST, fit


def _context(folders: Folders, gpu: str, attention: Attention, dtype: str, ledger: Ledger) -> Fit:
    path = folders.perf(gpu, "mla_context_module")
    key = ledger.source(
        f"aic-mla-{gpu}-context", path, f"{AIC}: latent attention block, context, {gpu}", AIC_LICENCE
    )
    table = rows(
        path,
        "batch_size, isl, min(latency) AS ms",
        f"{CONTEXT_DOMAIN} AND num_heads = {attention.heads} AND gemm_type = '{dtype}' GROUP BY 1, 2",
        "1, 2",
    )
    for row in each(table):
        ledger.keep(
            "mla_context", key, row["ms"], heads=attention.heads, batch=row["batch_size"], length=row["isl"]
        )
    batch, length, ms = (table[name].astype(float) for name in ("batch_size", "isl", "ms"))
    return relative_fit([np.ones_like(batch), batch * length, batch * length * length / 2], ms * 1e6)
