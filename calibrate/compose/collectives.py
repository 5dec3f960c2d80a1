"""What devices that share a model send each other in one pass.

Tensor parallel engines sum the hidden states of all devices twice a layer (after attention, after
the feed-forward block) and once after the embedding, and gather the logits. Sizes in the tables are
in numbers of two bytes, not in bytes (536,870,912 of them take 3.2 ms on two H100: 333 GB/s).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

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
from calibrate.profile import Counted, Curve, Mark, Term

TOKENS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048, 4096, 8192)
HEAD_TOKENS = tuple(n for n in TOKENS if n <= 4096)
BYTES = 2
"""Hidden states and logits are sent in bf16."""

Op = Literal["all_reduce", "all_gather", "reduce_scatter"]


@dataclass(frozen=True)
class Link:
    """A device's link to its neighbours, one direction, for devices without a table."""

    bytes_per_s: float
    latency_ns: float
    source: str


@dataclass(frozen=True)
class Times:
    """Latency of one collective over its size in numbers, measured or from a link."""

    key: str
    mark: Mark
    devices: int
    numbers: Floats
    ns: Floats

    def at(self, numbers: Floats) -> Floats:
        """Nanoseconds at each size: straight between, flat below the smallest, last slope beyond."""
        between: Floats = np.interp(numbers, self.numbers, self.ns)
        slope = max(0.0, (self.ns[-1] - self.ns[-2]) / (self.numbers[-1] - self.numbers[-2]))
        beyond: Floats = between + slope * np.maximum(numbers - self.numbers[-1], 0.0)
        return beyond


def collective(
    folders: Folders, gpu: str, op: Op, devices: int, ledger: Ledger, link: Link | None = None
) -> Times:
    """The measured times of ``op`` between ``devices``; from ``link`` where no table has them."""
    try:
        path, where, what = _table(folders, gpu, op)
        table = rows(
            path, "message_size AS n, min(latency) AS ms", f"{where} AND num_gpus = {devices} GROUP BY 1", "1"
        )
    except TableError:
        if link is None:
            raise
        return from_link(link, op, devices)
    key = ledger.source(f"aic-{op.replace('_', '-')}-{gpu}", path, f"{AIC}: {what}, {gpu}", AIC_LICENCE)
    for row in each(table):
        ledger.keep(op, key, row["ms"], devices=devices, numbers=row["n"])
    rising: Floats = np.maximum.accumulate(table["ms"].astype(float)) * 1e6
    return Times(key, "composed", devices, table["n"].astype(float), rising)


def _table(folders: Folders, gpu: str, op: Op) -> tuple[Path, str, str]:
    """All-reduce is vLLM's own (custom kernel, NCCL above 8 MiB, captured); the rest is NCCL's."""
    if op == "all_reduce":
        return folders.perf(gpu, "custom_allreduce"), "backend = 'vllm_graph'", "vLLM's all-reduce in a graph"
    return folders.nccl(gpu), f"op_name = '{op}' AND nccl_dtype = 'half'", f"NCCL {op}"


def from_link(link: Link, op: Op, devices: int) -> Times:
    """A ring: every device sends ``(d - 1) / d`` of the whole once, an all-reduce twice."""
    turns = 2 if op == "all_reduce" else 1
    numbers = np.array([0.0, 2.0**29])
    sent = turns * (devices - 1) / devices * numbers * BYTES
    ns = turns * (devices - 1) * link.latency_ns + sent / link.bytes_per_s * 1e9
    return Times(f"{op} from {link.source}", "analytic", devices, numbers, ns)


def reduce_term(times: Times, hidden: int, count: int) -> Term:
    """``count`` all-reduces of every token's hidden state."""
    return _term("allreduce", times, hidden, count, "tokens", TOKENS)


def gather_term(times: Times, vocabulary: int, over: Counted) -> Term:
    """The logits of every sampled position, gathered from all devices."""
    return _term("gather_logits", times, vocabulary, 1, over, HEAD_TOKENS)


def dispatch_terms(gather: Times, scatter: Times, hidden: int, layers: int) -> tuple[Term, Term]:
    """Tokens of all data-parallel ranks to the experts' devices and back, vLLM's default way.

    Every rank's tokens are gathered, each device runs its own experts on all of them, and the sums
    are scattered back (``allgather_reducescatter``); all ranks are taken to have as many tokens.
    """
    return (
        _term("dispatch", gather, gather.devices * hidden, layers, "tokens", TOKENS),
        _term("combine", scatter, scatter.devices * hidden, layers, "tokens", TOKENS),
    )


def _term(name: str, times: Times, width: int, count: int, over: Counted, x: Sequence[int]) -> Term:
    ns = count * times.at(np.asarray(x, dtype=np.float64) * width)
    return Term(
        name=name,
        mark=times.mark,
        source=f"{times.key}: {count} x {width} numbers per {over[:-1]}, {times.devices} devices",
        curve=Curve(over=over, x=(0, *x), ns=(0.0, *(significant(value) for value in ns.tolist()))),
    )
