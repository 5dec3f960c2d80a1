"""The linear layers and the output head of a pass, as terms."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from calibrate.compose.gemm import GemmTable
from calibrate.compose.tables import VIDUR, VIDUR_LICENCE, Floats, Folders, Ledger, each, rows, significant
from calibrate.profile import Counted, Curve, Term
from calibrate.shapes import Linear

LARGEST_HEAD = 4352
"""Positions sampled in one step: no engine samples more."""

VIDUR_COLUMNS = {
    "qkv": "attn_pre_proj",
    "attention_out": "attn_post_proj",
    "gate_up": "mlp_up_proj",
    "down": "mlp_down_proj",
}


def linear_term(table: GemmTable, linears: Sequence[Linear], ledger: Ledger, name: str = "linear") -> Term:
    """Every product of a pass over its tokens, summed at the points that the table has."""
    total = np.zeros(len(table.m))
    for linear in linears:
        table.keep(linear, ledger)
        total += linear.count * table.latency(linear)
    parts = "; ".join(f"{linear.count} x {table.describe(linear)}" for linear in linears)
    return Term(name=name, mark="composed", source=f"{table.key}: {parts}", curve=_curve(table.m, total))


def head_term(table: GemmTable, head: Linear, over: Counted, ledger: Ledger) -> Term:
    """The output head over the positions that are sampled (nothing when there are none)."""
    table.keep(head, ledger)
    keep = [index for index, m in enumerate(table.m) if m <= LARGEST_HEAD]
    x = [0, *(table.m[index] for index in keep)]
    ns = [0.0, *table.latency(head)[keep].tolist()]
    return Term(
        name="lm_head",
        mark="composed",
        source=f"{table.key}: {table.describe(head)}",
        curve=Curve(over=over, x=tuple(x), ns=tuple(significant(value) for value in ns)),
    )


def vidur_linear_term(
    folders: Folders,
    gpu: str,
    model: str,
    table: GemmTable,
    linears: Sequence[Linear],
    ledger: Ledger,
    tp: int = 1,
) -> Term:
    """Vidur's measured projections of ``model``; above its last point the GEMM table's growth."""
    x, per_layer = _vidur(folders, gpu, model, ledger, tp)
    total = np.zeros(len(x))
    for linear in linears:
        total += linear.count * per_layer[linear.name]
    grid = np.zeros(len(table.m))
    for linear in linears:
        grid += linear.count * table.latency(linear)
        table.keep(linear, ledger)
    last = float(np.interp(x[-1], table.m, grid))
    beyond = [(m, total[-1] * ns / last) for m, ns in zip(table.m, grid.tolist(), strict=True) if m > x[-1]]
    return Term(
        name="linear",
        mark="composed",
        source=(
            f"vidur {gpu} {model}: projections of one layer (1 us resolution) x layers, to {x[-1]} tokens; "
            f"above it that value times the growth of the same shapes in {table.key}"
        ),
        curve=_curve((*x, *(m for m, _ in beyond)), np.concatenate([total, [value for _, value in beyond]])),
    )


def _vidur(
    folders: Folders, gpu: str, model: str, ledger: Ledger, tp: int
) -> tuple[tuple[int, ...], dict[str, Floats]]:
    key = ledger.source("vidur", folders.vidur, f"{VIDUR}: kernels of one decoder layer", VIDUR_LICENCE)
    columns = ", ".join(f"{column} AS {name}" for name, column in VIDUR_COLUMNS.items())
    table = rows(
        folders.vidur,
        f"num_tokens AS tokens, {columns}",
        f"gpu = '{gpu}' AND model = '{model}' AND tp = {tp}",
        "1",
    )
    for row in each(table):
        for name in VIDUR_COLUMNS:
            ledger.keep(name, key, row[name], gpu=gpu, tokens=row["tokens"])
    x = tuple(int(tokens) for tokens in table["tokens"].tolist())
    return x, {name: table[name] * 1e6 for name in VIDUR_COLUMNS}


def _curve(x: Sequence[int], ns: Floats) -> Curve:
    return Curve(x=tuple(x), ns=tuple(significant(value) for value in ns.tolist()))
