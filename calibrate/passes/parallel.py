"""Tensor parallelism under ``torchrun``: shapes cut among the ranks, sums over them."""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from torch import Tensor, distributed

from calibrate.passes.contract import Unsupported
from calibrate.shapes import Linear, Shape
from calibrate.timing.peers import ALONE, PeerLost, Peers

T = TypeVar("T")

COLUMNS = ("qkv", "gate_up", "gdn_qkvz", "gdn_ba")
"""Products whose outputs are divided."""

ROWS = ("attention_out", "down", "gdn_out")
"""Products whose inputs are divided; their results are summed over the ranks."""


@dataclass
class World:
    """How many processes share one model; ``apart`` while this one rehearses a pass without the others."""

    size: int = 1
    apart: bool = False

    def sum(self, x: Tensor) -> Tensor:
        """The sum of ``x`` over the ranks, in place."""
        if self.size > 1 and not self.apart:
            distributed.all_reduce(x)
        return x

    def gather(self, columns: Tensor, whole: Tensor) -> None:
        """Put every rank's columns side by side into ``whole``."""
        parts = [columns.clone() for _ in range(self.size)]
        if not self.apart:
            distributed.all_gather(parts, columns)
        torch.cat(parts, -1, out=whole)

    @contextmanager
    def rehearsal(self) -> Iterator[None]:
        """Sums and gathers that wait for nobody: lack of memory shows before the ranks meet."""
        self.apart = True
        try:
            yield
        finally:
            self.apart = False


class Ranks:
    """``Peers`` over gloo, whatever the passes use: agreeing puts nothing on the device."""

    def __init__(self) -> None:
        self.rank, self.size = distributed.get_rank(), distributed.get_world_size()
        self._group = distributed.new_group(backend="gloo")

    def share(self, mine: T) -> list[T]:
        """See ``Peers``."""
        found = [mine] * self.size
        try:
            distributed.all_gather_object(found, mine, group=self._group)
        except RuntimeError as error:
            raise PeerLost(f"another rank ended: {str(error).splitlines()[0]}") from None
        return found


def join_peers(device: str) -> Peers:
    """The ranks that ``torchrun`` started, this one on its own device."""
    return Ranks() if join_world(place_of(device)).size > 1 else ALONE


def place_of(device: str) -> torch.device:
    """The device of this rank; raises ``Unsupported`` where torch does not see it."""
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise Unsupported(f"device {device}: this torch ({torch.__version__}) sees no CUDA device")
    if device != "cuda":
        return torch.device(device)
    place = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(place)
    return place


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
