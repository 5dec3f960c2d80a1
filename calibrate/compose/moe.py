"""Routed experts from the measured fused mixture-of-experts layer, over the step's tokens."""

from __future__ import annotations

from pathlib import Path

from calibrate.compose.tables import (
    AIC,
    AIC_LICENCE,
    Floats,
    Folders,
    Ledger,
    TableError,
    each,
    rows,
    significant,
)
from calibrate.profile import Curve, Term
from calibrate.shapes import Moe
from calibrate.sharding import WHOLE, Split

ROUTING = "power_law_1.01"
"""Which experts the tokens choose. The table has ``balanced``, ``power_law_1.01`` and ``_1.2``;
real routers are skewed, the milder skew is the default here."""

ROUTINGS = ("balanced", "power_law_1.01", "power_law_1.2")


def moe_term(
    folders: Folders,
    gpu: str,
    moe: Moe,
    ledger: Ledger,
    routing: str = ROUTING,
    dtype: str = "bfloat16",
    split: Split = WHOLE,
) -> Term:
    """All expert layers of one pass on the fullest device.

    ``moe`` is the whole layer. With ``split.ep`` above 1 each device has whole experts and the table
    gives the device with the most tokens (its power laws are skewed between devices, too); else
    every expert is cut into ``split.tp`` parts. A replica's tokens are joined by those of ``split.dp - 1``
    others with as many. ``balanced`` sends tokens to as many experts as there can be.
    """
    path, where = _file(folders, gpu, _where(moe, routing, dtype, split))
    key = ledger.source(
        f"aic-moe-{gpu}", path, f"{AIC}: fused MoE layer, {_kernel(dtype)}, {gpu}", AIC_LICENCE
    )
    table = rows(path, "num_tokens AS tokens, min(latency) AS ms", f"{where} GROUP BY 1", "1")
    for row in each(table):
        ledger.keep("moe", key, row.pop("ms"), routing=routing, **row)
    source = f"{key}: {moe.experts} experts, {moe.active} active, routing {routing}, x{moe.layers} layers"
    if split.ep > 1:
        source += f"; the fullest of {split.ep} devices, {moe.experts // split.ep} experts each"
    elif split.tp > 1:
        source += f"; every expert cut over {split.tp} devices"
    if split.dp > 1:
        source += f"; tokens of {split.dp} replicas"
    return Term(name="moe", mark="composed", source=source, curve=_curve(table, moe.layers, split.dp))


def _curve(table: dict[str, Floats], layers: int, dp: int) -> Curve:
    """Over a replica's own tokens: the first point that ``dp`` divides, then every one."""
    points = [(int(n), float(ms)) for n, ms in zip(table["tokens"], table["ms"], strict=True)]
    own = [(n // dp, ms) for n, ms in points if n % dp == 0]
    return Curve(x=tuple(n for n, _ in own), ns=tuple(significant(layers * ms * 1e6) for _, ms in own))


def _where(moe: Moe, routing: str, dtype: str, split: Split) -> str:
    return (
        f"moe_dtype = '{dtype}' AND hidden_size = {moe.hidden} "
        f"AND inter_size = {moe.inter} AND topk = {moe.active} AND num_experts = {moe.experts} "
        f"AND moe_tp_size = {split.expert_tp} AND moe_ep_size = {split.ep} AND distribution = '{routing}'"
    )


def _file(folders: Folders, gpu: str, where: str) -> tuple[Path, str]:
    """The ground truth's excerpt where it has such rows; its origin, the package's table, otherwise."""
    excerpt = f"gpu = '{gpu}' AND {where}"
    if folders.moe.exists():
        try:
            rows(folders.moe, "num_tokens", excerpt, "1")
            return folders.moe, excerpt
        except TableError:
            pass
    return folders.perf(gpu, "moe"), where


def _kernel(dtype: str) -> str:
    return {"bfloat16": "vLLM's Triton experts"}.get(dtype, f"vLLM's {dtype} kernels")
