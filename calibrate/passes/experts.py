"""Feed-forward layers: one SwiGLU, or routed experts behind a router with random weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional

from calibrate.passes.contract import Unsupported
from calibrate.passes.weights import Weights
from calibrate.shapes import Moe


class FeedForward(Protocol):
    """``[tokens, hidden]`` to the same."""

    def __call__(self, x: Tensor) -> Tensor:
        """Apply."""
        ...


def gated(x: Tensor) -> Tensor:
    """SwiGLU of a fused product ``[gate, up]``."""
    gate, up = x.chunk(2, -1)
    return functional.silu(gate) * up


class SwiGlu:
    """The dense feed-forward layer."""

    def __init__(self, hidden: int, inter: int, weights: Weights) -> None:
        self.gate_up, self.down = weights.linear(2 * inter, hidden), weights.linear(hidden, inter)

    def __call__(self, x: Tensor) -> Tensor:
        """Apply."""
        return self.down(gated(self.gate_up(x)))


class Routed:
    """Top-k of the experts for every token. Random router weights load them nearly evenly."""

    def __init__(self, moe: Moe, weights: Weights) -> None:
        self.moe = moe
        self.router = weights.unrounded(weights.matrix(moe.experts, moe.hidden))
        self.experts: Looped | Grouped = (Looped if weights.device.type == "cpu" else Grouped)(moe, weights)

    def __call__(self, x: Tensor) -> Tensor:
        """Sort tokens by expert, run the experts, add each token's results by its router's weights."""
        chances, chosen = self.router(x).float().softmax(-1).topk(self.moe.active, -1)
        order = chosen.flatten().argsort(stable=True)
        token = order // self.moe.active
        share = (chances / chances.sum(-1, keepdim=True)).flatten()[order].to(x.dtype)
        counts = (chosen.flatten()[:, None] == torch.arange(self.moe.experts, device=x.device)).sum(0)
        out = self.experts(x[token], counts)
        return torch.zeros_like(x).index_add_(0, token, out * share[:, None])


class Looped:
    """Expert after expert, as a CPU does it; idle ones are skipped, so shapes follow the data."""

    def __init__(self, moe: Moe, weights: Weights) -> None:
        self.each = [SwiGlu(moe.hidden, moe.inter, weights) for _ in range(moe.experts)]

    def __call__(self, x: Tensor, counts: Tensor) -> Tensor:
        """``x [tokens * active, hidden]`` sorted by expert, ``counts`` of each."""
        parts = torch.split(x, counts.tolist())
        return torch.cat([e(part) for e, part in zip(self.each, parts, strict=True) if len(part)])


class Grouped:
    """One grouped product over all experts, shapes fixed and counts left on the device."""

    def __init__(self, moe: Moe, weights: Weights) -> None:
        self.product = grouped_product()
        self.gate_up = weights.matrix(moe.experts, 2 * moe.inter, moe.hidden)
        self.down = weights.matrix(moe.experts, moe.hidden, moe.inter)

    def __call__(self, x: Tensor, counts: Tensor) -> Tensor:
        """``x [tokens * active, hidden]`` sorted by expert, ``counts`` of each."""
        ends = counts.cumsum(0).to(torch.int32)
        inner = gated(self.product(x, self.gate_up.mT, offs=ends))
        out: Tensor = self.product(inner, self.down.mT, offs=ends)
        return out


def grouped_product() -> Callable[..., Any]:
    """Torch's grouped matrix product under either of its names; ``Unsupported`` without it."""
    found = getattr(functional, "grouped_mm", None) or getattr(torch, "_grouped_mm", None)
    if found is None:
        raise Unsupported(
            f"routed experts on this device need torch's grouped_mm; {torch.__version__} has none"
        )
    product: Callable[..., Any] = found
    return product
