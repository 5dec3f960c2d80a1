"""Keys, values and recurrent states of all sequences, in pools that grow to what a cell asks for."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from calibrate.passes.weights import Weights
from calibrate.shapes import Attention, Gdn

KV_STD = 0.1


class KvCache:
    """One pool of keys and one of values per layer, filled with N(0, 0.1).

    A pool is ``[tokens, kv_heads, head_dim]``; a step cuts it into slots of one sequence each.
    """

    def __init__(self, attention: Attention, layers: int, weights: Weights) -> None:
        self.attention, self.layers, self.weights = attention, layers, weights
        self.keys: list[Tensor]
        self.values: list[Tensor]
        self.release()

    def reserve(self, tokens: int) -> None:
        """Make room for ``tokens``; raises ``MemoryError`` (or torch's own error) if there is none."""
        if not self.layers or (self.keys and self.keys[0].shape[0] >= tokens):
            return
        self.release()
        size = (tokens, self.attention.kv_heads, self.attention.head_dim)
        _check(self.weights, 2 * self.layers * tokens * size[1] * size[2])
        keys = [self._filled(*size) for _ in range(self.layers)]
        values = [self._filled(*size) for _ in range(self.layers)]
        self.keys, self.values = keys, values

    def release(self) -> None:
        """Hold nothing."""
        self.keys, self.values = [], []

    def _filled(self, *size: int) -> Tensor:
        return self.weights.random(*size).mul_(KV_STD)


class StateCache:
    """Recurrent state and convolution window of gated-DeltaNet layers.

    ``states[layer] [rows, heads, dk, dv]`` (float32) and ``windows[layer] [rows, conv - 1, channels]``
    are read; the states after each new token go to ``checkpoints`` and the inputs to ``inputs``,
    from which an engine goes on at whichever token was accepted.
    """

    def __init__(self, gdn: Gdn | None, layers: int, weights: Weights) -> None:
        self.gdn, self.layers, self.weights = gdn, layers if gdn else 0, weights
        self.states: list[Tensor]
        self.windows: list[Tensor]
        self.checkpoints: list[Tensor]
        self.inputs: list[Tensor]
        self._room: tuple[int, int, int]
        self.release()

    def reserve(self, rows: int, kept: int, tokens: int) -> None:
        """Room for ``rows`` sequences, ``kept`` checkpoints, ``tokens`` inputs; errors as ``KvCache``'s."""
        gdn, asked = self.gdn, (rows, kept, tokens)
        if gdn is None or all(a <= b for a, b in zip(asked, self._room, strict=True)):
            return
        rows, kept, tokens = (max(a, b) for a, b in zip(asked, self._room, strict=True))
        self.release()
        state = gdn.value_heads * gdn.key_dim * gdn.value_dim
        _check(self.weights, self.layers * (rows + kept) * 2 * state)
        made: tuple[list[Tensor], list[Tensor], list[Tensor], list[Tensor]] = ([], [], [], [])
        for _ in range(self.layers):
            made[0].append(self._state(gdn, rows))
            made[1].append(torch.zeros_like(self._state(gdn, kept)))
            made[2].append(self.weights.random(rows, gdn.conv - 1, gdn.conv_channels))
            made[3].append(self.weights.random(tokens + rows * (gdn.conv - 1), gdn.conv_channels))
        self.states, self.checkpoints, self.windows, self.inputs = made
        self._room = rows, kept, tokens

    def release(self) -> None:
        """Hold nothing."""
        self._room = (0, 0, 0)
        self.states, self.checkpoints, self.windows, self.inputs = [], [], [], []

    def _state(self, gdn: Gdn, rows: int) -> Tensor:
        made = self.weights.random(rows, gdn.value_heads, gdn.key_dim, gdn.value_dim)
        return made.mul_(KV_STD).float()


def _check(weights: Weights, values: int) -> None:
    """Refuse on a CPU before the kernel has to end the process; CUDA raises by itself."""
    if weights.device.type != "cpu":
        return
    need, free = values * weights.dtype.itemsize, _available_bytes()
    if need > 0.9 * free:
        raise MemoryError(f"({need / 2**30:.1f} GiB needed, {free / 2**30:.1f} GiB available)")


def _available_bytes() -> float:
    """``MemAvailable`` of Linux; without it no limit is known."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return float("inf")
    found = [int(line.split()[1]) for line in lines if line.startswith("MemAvailable")]
    return found[0] * 1024.0 if found else float("inf")
