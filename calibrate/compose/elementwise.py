"""Norms, activations, rotary embedding and residual adds, from Vidur's measured kernels.

Vidur times them for Llama models on A100 and H100 in eager mode, to the microsecond. What a
kernel takes at one token is launch and latency and is kept, unless a compiling engine fuses it into
its neighbour (residual add into norm, query-key norm into rope, output gate into the product); what it
takes beyond that is traffic, scaled by width, and by bandwidth where the device is another one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from calibrate.compose.tables import VIDUR, VIDUR_LICENCE, Floats, Folders, Ledger, each, rows, significant
from calibrate.profile import Curve, Term
from calibrate.shapes import Elementwise

TOKENS = (1, 16, 32, 64, 128, 192, 256, 384, 512, 768, 1024)
BEYOND = (2048, 4096, 8192)


@dataclass(frozen=True)
class Reference:
    """A model that Vidur measured: the width that each of its kernels had."""

    gpu: str
    model: str
    widths: dict[str, int]


H100 = Reference("h100", "meta-llama/Llama-2-7b-hf", {"norm": 4096, "rope": 8192, "act": 11008, "add": 4096})
A100 = Reference(
    "a100", "meta-llama/Meta-Llama-3-8B", {"norm": 4096, "rope": 5120, "act": 14336, "add": 4096}
)


def elementwise_term(
    folders: Folders,
    reference: Reference,
    ops: Sequence[Elementwise],
    ledger: Ledger,
    bandwidth: float = 1.0,
) -> Term:
    """All small kernels of one pass; ``bandwidth`` is this device's over the reference's."""
    x, per_op = _reference(folders, reference, ledger)
    total = np.zeros(len(x))
    for op in ops:
        ns = per_op[op.op]
        traffic = (ns - ns[0]) * op.width / reference.widths[op.op] / bandwidth
        total += op.count * (traffic if op.fused else ns[0] + traffic)
    scaling = "" if bandwidth == 1.0 else f", traffic divided by the bandwidth ratio {bandwidth:.2f}"
    return Term(
        name="elementwise",
        mark="composed",
        source=(
            f"vidur {reference.gpu} {reference.model}: {_listing(ops)}; the part above one token scaled "
            f"by width{scaling}; above 1024 tokens the last slope (assumed)"
        ),
        curve=Curve(x=x, ns=tuple(significant(value) for value in total.tolist())),
    )


def _listing(ops: Sequence[Elementwise]) -> str:
    return ", ".join(f"{op.count} {'fused ' if op.fused else ''}{op.op} of {op.width}" for op in ops)


def _reference(
    folders: Folders, reference: Reference, ledger: Ledger
) -> tuple[tuple[int, ...], dict[str, Floats]]:
    key = ledger.source("vidur", folders.vidur, f"{VIDUR}: kernels of one decoder layer", VIDUR_LICENCE)
    wanted = ", ".join(str(tokens) for tokens in TOKENS)
    table = rows(
        folders.vidur,
        "num_tokens AS tokens, (input_layernorm + post_attention_layernorm) / 2 AS norm, "
        "attn_rope AS rope, mlp_act AS act, add",
        f"gpu = '{reference.gpu}' AND model = '{reference.model}' AND tp = 1 AND num_tokens IN ({wanted})",
        "1",
    )
    for row in each(table):
        for op in ("norm", "rope", "act", "add"):
            ledger.keep(op, key, row[op], gpu=reference.gpu, tokens=row["tokens"])
    x = tuple(int(tokens) for tokens in table["tokens"].tolist())
    return (*x, *BEYOND), {op: _extended(x, table[op] * 1e6) for op in ("norm", "rope", "act", "add")}


def _extended(x: tuple[int, ...], ns: Floats) -> Floats:
    """Rising (the resolution of 1 us makes small dips) and carried on with the slope above 512."""
    rising = np.maximum.accumulate(ns.astype(float))
    middle = x.index(512)
    slope = (rising[-1] - rising[middle]) / (x[-1] - x[middle])
    beyond = [rising[-1] + slope * (tokens - x[-1]) for tokens in BEYOND]
    extended: Floats = np.concatenate([rising, beyond])
    return extended
