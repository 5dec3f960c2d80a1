"""Routed experts from the measured fused mixture-of-experts layer, over the step's tokens."""

from __future__ import annotations

from calibrate.compose.tables import AIC, AIC_LICENCE, Folders, Ledger, each, rows, significant
from calibrate.profile import Curve, Term
from calibrate.shapes import Moe

ROUTING = "power_law_1.01"
"""Which experts the tokens choose. The table has ``balanced``, ``power_law_1.01`` and ``_1.2``;
real routers are skewed, the milder skew is the default here."""


def moe_term(folders: Folders, gpu: str, moe: Moe, ledger: Ledger, routing: str = ROUTING) -> Term:
    """All expert layers of one pass, bf16, one device, no expert parallelism."""
    key = ledger.source(
        f"aic-moe-{gpu}", folders.moe, f"{AIC}: fused MoE layer, vLLM's Triton experts, {gpu}", AIC_LICENCE
    )
    table = rows(
        folders.moe,
        "num_tokens AS tokens, min(latency) AS ms",
        f"gpu = '{gpu}' AND moe_dtype = 'bfloat16' AND hidden_size = {moe.hidden} "
        f"AND inter_size = {moe.inter} AND topk = {moe.active} AND num_experts = {moe.experts} "
        f"AND moe_tp_size = 1 AND moe_ep_size = 1 AND distribution = '{routing}' GROUP BY 1",
        "1",
    )
    for row in each(table):
        ledger.keep("moe", key, row.pop("ms"), routing=routing, **row)
    ns = tuple(significant(moe.layers * ms * 1e6) for ms in table["ms"].tolist())
    return Term(
        name="moe",
        mark="composed",
        source=f"{key}: {moe.experts} experts, {moe.active} active, routing {routing}, x{moe.layers} layers",
        curve=Curve(x=tuple(int(tokens) for tokens in table["tokens"].tolist()), ns=ns),
    )
