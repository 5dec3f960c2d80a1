"""Linear layers as the device runs them best, and how that was found out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from calibrate.passes.contract import Unsupported

FP8_MAX = 448.0
"""Largest finite float8_e4m3fn (OCP 8-bit floating point specification, table 2)."""


class Linear(Protocol):
    """``x [tokens, k] -> [tokens, n]``; with ``out`` the result lies there."""

    def __call__(self, x: Tensor, out: Tensor | None = None) -> Tensor:
        """Multiply."""
        ...


class Plain:
    """The device's ordinary matrix product."""

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight

    def __call__(self, x: Tensor, out: Tensor | None = None) -> Tensor:
        """Multiply."""
        if out is None:
            return functional.linear(x, self.weight)
        return torch.mm(x, self.weight.t(), out=out)


class Packed:
    """oneDNN with the weight in its own blocked layout.

    ``F.linear`` in float32 on a CPU goes from a matrix-vector to a matrix-matrix kernel at two
    tokens and doubles its time there; an engine that packs its weights does not. The packed kernel
    takes longer for one or two tokens than for four, so fewer are padded to four.
    """

    fewest = 4

    def __init__(self, weight: Tensor) -> None:
        self.packed = torch.ops.mkldnn._reorder_linear_weight(weight)

    def __call__(self, x: Tensor, out: Tensor | None = None) -> Tensor:
        """Multiply."""
        count = len(x)
        if count < self.fewest:
            x = functional.pad(x, (0, 0, 0, self.fewest - count))
        y: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.packed, None, "none", [], "")[:count]
        return y if out is None else _take(out, y)


class Fp8:
    """8-bit weights with one scale per tensor; inputs are scaled and rounded in every pass."""

    def __init__(self, weight: Tensor) -> None:
        self.weight, self.scale = _to_fp8(weight)
        self.dtype = weight.dtype

    def __call__(self, x: Tensor, out: Tensor | None = None) -> Tensor:
        """Multiply."""
        rounded, scale = _to_fp8(x)
        y: Tensor = torch._scaled_mm(
            rounded, self.weight.t(), scale_a=scale, scale_b=self.scale, out_dtype=self.dtype
        )
        return y if out is None else out.copy_(y)


def _to_fp8(x: Tensor) -> tuple[Tensor, Tensor]:
    scale = (x.abs().amax().float() / FP8_MAX).clamp_min(1e-12)
    return (x / scale).clamp(-FP8_MAX, FP8_MAX).to(torch.float8_e4m3fn), scale


def _take(out: Tensor, y: Tensor) -> Tensor:
    # Hand the storage over instead of copying: the kernel has no out= form, and a copy of the
    # logits would be timed as if the engine made it.
    out.set_(y.untyped_storage(), 0, y.shape, y.stride())
    return out


def choose_linear(
    device: torch.device, dtype: torch.dtype, fp8: bool
) -> tuple[str, Callable[[Tensor], Linear]]:
    """The linear kernel for this device and its name; ``Unsupported`` where fp8 does not run."""
    if fp8:
        reason = _fails(Fp8, device, dtype)
        if reason:
            raise Unsupported(f"fp8: torch._scaled_mm does not run on this {device.type}: {reason}")
        return "fp8_scaled_mm", Fp8
    if device.type == "cpu" and dtype == torch.float32 and not _fails(Packed, device, dtype):
        return "onednn_packed", Packed
    return "plain", Plain


def _fails(kernel: Callable[[Tensor], Linear], device: torch.device, dtype: torch.dtype) -> str:
    """Why the kernel does not run or is wrong here, "" when it is right."""
    generator = torch.Generator(device).manual_seed(0)
    weight, x = (torch.randn(n, 64, generator=generator, device=device).to(dtype) for n in (32, 3))
    try:
        got = kernel(weight)(x).float()
    except (RuntimeError, AttributeError, NotImplementedError, ValueError) as error:
        return str(error).splitlines()[0]
    expected = functional.linear(x.float(), weight.float())
    off = float((got - expected).norm() / expected.norm())
    return "" if off < 0.1 else f"its result is {off:.0%} off"
