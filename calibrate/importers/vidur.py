"""Vidur's profile of one decoder layer's kernels (``mlp.csv``), for every layer of the model.

Projections and small kernels are measured. Attention over the cache and the output head are not in
the file and come from the datasheet (``calibrate.analytic``), marked so.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from calibrate.analytic import Roofline
from calibrate.compose.tables import significant
from calibrate.importers.common import MS, About, Reading, Row, csv_rows, file_source
from calibrate.profile import Assumption, Curve, ProfileError, Sample, StatedError, Term

PROJECTIONS = ("attn_pre_proj", "attn_post_proj", "mlp_up_proj", "mlp_down_proj")
SMALL = {
    "input_layernorm": 1,
    "post_attention_layernorm": 1,
    "attn_rope": 1,
    "mlp_act": 1,
    "add": 2,
}
"""Kernels of a layer beside its projections, and how often each runs."""

KEYS = ("gpu", "model", "tp")
WIDTH = "num_tensor_parallel_workers"

ERROR = StatedError(
    relative=0.12,
    basis="Vidur's kernels summed are within 1 % of its own layer times; attention and head are analytic, "
    "and kernels timed alone miss how they overlap (docs/importers.md)",
)


def read_vidur(files: Sequence[Path], about: About) -> Reading:
    """Linear and small kernels from one ``mlp.csv`` (Vidur's own columns, or one column per kernel).

    ``--select gpu=... model=... tp=...`` picks the rows when a file holds several.
    """
    if len(files) != 1:
        raise ProfileError(str(files[-1]) if files else "FILE", "file", "give exactly one mlp.csv")
    path = files[0]
    shape = about.need_shape(path)
    rows = _chosen(csv_rows(path, ("num_tokens",), "num_tokens,time_stats.mlp_up_proj.median,..."), about)
    key, times = "vidur", {row.count("num_tokens"): row for row in rows}
    tokens = sorted(times)
    ordered = [times[n] for n in tokens]
    layers = shape.layers
    large = [layers * sum(_ms(row, op) for op in PROJECTIONS) for row in ordered]
    small = [layers * sum(n * _ms(row, op) for op, n in SMALL.items()) for row in ordered]
    roofline = Roofline(about.gpu)
    mixers = (roofline.decode(shape.attention), roofline.prefill(shape.attention))
    return Reading(
        verify=(
            _term("linear", key, tokens, large),
            roofline.head(shape.head, "logits"),
            *mixers,
            _term("elementwise", key, tokens, small),
        ),
        max_tokens=tokens[-1],
        sources=(file_source(key, path, "microsoft/vidur: kernels of one decoder layer, medians", about),),
        samples=tuple(_sample(key, row, op) for row in ordered for op in (*PROJECTIONS, *SMALL)),
        assumptions=(_analytic(about),),
        error=ERROR,
        kind="composed",
    )


def _analytic(about: About) -> Assumption:
    return Assumption(
        what="target.verify.attention_decode, attention_prefill, lm_head",
        value=f"from the datasheet of {about.gpu.device.name}",
        why="mlp.csv has neither attention over the cache nor the output head; collectives are not in it",
    )


def _chosen(rows: Sequence[Row], about: About) -> list[Row]:
    """Rows that ``select`` picks, of one device, model and width; ``ProfileError`` lists the choices."""
    wanted = {"tp": "1", **about.select}
    kept = [row for row in rows if all(_value(row, key) in ("", value) for key, value in wanted.items())]
    found = sorted({tuple(_value(row, key) for key in KEYS) for row in kept or rows})
    if len(found) == 1 and kept:
        return kept
    choices = "; ".join(" ".join(f"{k}={v}" for k, v in zip(KEYS, each, strict=True) if v) for each in found)
    how = "several" if kept else "no matching"
    raise ProfileError(rows[0].file, "--select", f"leaves {how} profiles; give one of: {choices}")


def _value(row: Row, key: str) -> str:
    return row.values.get(key) or row.values.get(WIDTH if key == "tp" else key, "")


def _ms(row: Row, op: str) -> float:
    column = op if op in row.values else f"time_stats.{op}.median"
    if column not in row.values:
        raise ProfileError(row.file, "header", f"has no column {op!r} nor {column!r}; give Vidur's mlp.csv")
    return row.positive(column)


def _sample(key: str, row: Row, op: str) -> Sample:
    us = significant(_ms(row, op) * 1e3)
    return Sample(op=op, shape={"tokens": row.count("num_tokens")}, us=us, source=key)


def _term(name: str, key: str, tokens: Sequence[int], ms: Sequence[float]) -> Term:
    curve = Curve(x=tuple(tokens), ns=tuple(significant(value * MS) for value in ms))
    return Term(name=name, mark="composed", source=f"{key}: one layer x layers", curve=curve)
