"""Tensor parallelism under ``torchrun``: shapes cut among the ranks, sums over them."""

from __future__ import annotations

import atexit
import os
from dataclasses import dataclass, replace

import torch
from torch import Tensor, distributed

from calibrate.passes.contract import Unsupported
from calibrate.shapes import Linear, Shape

COLUMNS = ("qkv", "gate_up", "gdn_qkvz", "gdn_ba")
"""Products whose outputs are divided."""

ROWS = ("attention_out", "down", "gdn_out")
"""Products whose inputs are divided; their results are summed over the ranks."""


@dataclass(frozen=True)
class World:
    """How many processes share one model."""

    size: int = 1

    def sum(self, x: Tensor) -> Tensor:
        """The sum of ``x`` over the ranks, in place."""
        if self.size > 1:
            distributed.all_reduce(x)
        return x

    def gather(self, columns: Tensor, whole: Tensor) -> None:
        """Put every rank's columns side by side into ``whole``."""
        parts = [torch.empty_like(columns) for _ in range(self.size)]
        distributed.all_gather(parts, columns)
        torch.cat(parts, -1, out=whole)


def join_world(device: torch.device) -> World:
    """The world that ``torchrun`` describes in the environment; alone without it."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size > 1 and not distributed.is_initialized():
        distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
        # Its threads must end before the interpreter does.
        atexit.register(distributed.destroy_process_group)
    return World(size)


def share(shape: Shape, size: int) -> Shape:
    """One rank's part of a model: heads, inner widths and the vocabulary divided by ``size``.

    Raises ``Unsupported`` where something does not divide (KV heads are not replicated).
    """
    if size == 1:
        return shape
    at, gdn, moe = shape.attention, shape.gdn, shape.moe
    return replace(
        shape,
        linears=tuple(_cut(linear, size) for linear in shape.linears),
        head=replace(shape.head, n=_part(shape.head.n, size, "vocabulary")),
        attention=replace(
            at, heads=_part(at.heads, size, "heads"), kv_heads=_part(at.kv_heads, size, "KV heads")
        ),
        gdn=gdn
        and replace(
            gdn,
            key_heads=_part(gdn.key_heads, size, "key heads"),
            value_heads=_part(gdn.value_heads, size, "value heads"),
        ),
        moe=moe and replace(moe, inter=_part(moe.inter, size, "expert width")),
    )


def _cut(linear: Linear, size: int) -> Linear:
    if linear.name in COLUMNS:
        return replace(linear, n=_part(linear.n, size, linear.name))
    if linear.name in ROWS:
        return replace(linear, k=_part(linear.k, size, linear.name))
    return linear


def _part(whole: int, size: int, what: str) -> int:
    if whole % size:
        raise Unsupported(f"tensor parallel {size}: {what} {whole} is not divisible")
    return whole // size
