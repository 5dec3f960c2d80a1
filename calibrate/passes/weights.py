"""Random weights from one seeded stream, counted as they are made."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from calibrate.passes.linear import Fp8, Linear, Plain

STD = 0.02


class Weights:
    """Makes a model's tensors: N(0, 0.02), norms one. Never zeros: those multiply too fast.

    ``parameters`` counts what was made since the start, borrowed tensors apart.
    """

    def __init__(
        self, device: torch.device, dtype: torch.dtype, seed: int, kernel: Callable[[Tensor], Linear]
    ) -> None:
        self.device, self.dtype, self.kernel = device, dtype, kernel
        self.parameters = 0
        self._generator = torch.Generator(device).manual_seed(seed)

    def matrix(self, *sizes: int) -> Tensor:
        """A weight tensor of these sizes."""
        made = self.random(*sizes).mul_(STD)
        self.parameters += made.numel()
        return made

    def norm(self, size: int) -> Tensor:
        """The weight of a norm: ones."""
        self.parameters += size
        return torch.ones(size, device=self.device, dtype=self.dtype)

    def linear(self, n: int, k: int) -> Linear:
        """A product of ``k`` inputs into ``n`` outputs, in the device's kernel."""
        return self.kernel(self.matrix(n, k))

    def unrounded(self, weight: Tensor) -> Linear:
        """A product that 8-bit engines leave in 16 bits: output heads and routers."""
        return Plain(weight) if self.kernel is Fp8 else self.kernel(weight)

    def random(self, *sizes: int) -> Tensor:
        """N(0, 1) that is data, not a parameter."""
        empty = torch.empty(*sizes, device=self.device, dtype=self.dtype)
        return empty.normal_(generator=self._generator)

    def ids(self, count: int, below: int) -> Tensor:
        """Random token ids."""
        return torch.randint(below, (count,), device=self.device, generator=self._generator)
