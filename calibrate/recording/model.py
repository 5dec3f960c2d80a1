"""A byte language model small enough to train in minutes on a CPU, and its cache of keys and values."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

BYTES = 256


@dataclass(frozen=True)
class Shape:
    """Sizes of a model: a pre-norm transformer with rotary positions and tied embeddings."""

    layers: int
    width: int
    heads: int

    def as_dict(self) -> dict[str, int]:
        """The sizes by name, for the record."""
        return asdict(self)


class Cache:
    """Keys and values of a batch, and how many positions of each sequence they hold.

    Rolling back is lowering ``length``: what lies behind it is overwritten by the next tokens.
    """

    def __init__(self, shape: Shape, sequences: int, positions: int, like: Tensor) -> None:
        sizes = (shape.layers, 2, sequences, shape.heads, positions, shape.width // shape.heads)
        self.values = torch.zeros(sizes, dtype=like.dtype)
        self.length = torch.zeros(sequences, dtype=torch.long)

    def extend(self, layer: int, keys: Tensor, values: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
        """Write keys and values of shape (sequences, heads, n, size) at positions ``at``; returns all."""
        rows = torch.arange(len(at))[:, None]
        kept = self.values[layer]
        kept[0][rows, :, at] = keys.transpose(1, 2)
        kept[1][rows, :, at] = values.transpose(1, 2)
        return kept[0], kept[1]


class ByteModel(nn.Module):
    """Logits of the next byte."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(BYTES, shape.width)
        nn.init.normal_(self.embedding.weight, std=0.02)
        self.blocks = nn.ModuleList(_Block(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.width)

    @property
    def parameter_count(self) -> int:
        """Weights, the tied embedding counted once."""
        return sum(each.numel() for each in self.parameters())

    def forward(self, tokens: Tensor, cache: Cache | None = None) -> Tensor:
        """Logits of shape (sequences, n, 256) after each of ``tokens`` of shape (sequences, n).

        With a cache the tokens continue what it holds, and it grows by them.
        """
        return self.logits(self.states(tokens, cache))

    def states(self, tokens: Tensor, cache: Cache | None = None) -> Tensor:
        """Last hidden states, shape (sequences, n, width)."""
        start = torch.zeros(len(tokens), dtype=torch.long) if cache is None else cache.length
        at = start[:, None] + torch.arange(tokens.shape[1])
        x = self.embedding(tokens)
        turn = _rotation(at, self.shape.width // self.shape.heads)
        for layer, block in enumerate(self.blocks):
            x = block(x, turn, at, cache, layer)
        if cache is not None:
            cache.length = cache.length + tokens.shape[1]
        states: Tensor = self.norm(x)
        return states

    def logits(self, states: Tensor) -> Tensor:
        """Logits of the byte that follows each state."""
        return states @ self.embedding.weight.T

    def new_cache(self, sequences: int, positions: int) -> Cache:
        """An empty cache."""
        return Cache(self.shape, sequences, positions, self.embedding.weight)


class _Block(nn.Module):
    """Attention and a feed-forward net of four times the width, each behind a norm."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        width = shape.width
        self.heads = shape.heads
        self.before_attention, self.before_mlp = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(
        self, x: Tensor, turn: tuple[Tensor, Tensor], at: Tensor, cache: Cache | None, layer: int
    ) -> Tensor:
        x = x + self.out(self._attend(self.before_attention(x), turn, at, cache, layer))
        mlp: Tensor = self.down(functional.gelu(self.up(self.before_mlp(x))))
        return x + mlp

    def _attend(
        self, x: Tensor, turn: tuple[Tensor, Tensor], at: Tensor, cache: Cache | None, layer: int
    ) -> Tensor:
        parts = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        queries, keys, values = _turned(parts[0], turn), _turned(parts[1], turn), parts[2]
        if cache is None:
            mixed = functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        else:
            keys, values = cache.extend(layer, keys, values, at)
            seen = torch.arange(keys.shape[2]) <= at[:, None, :, None]
            mixed = functional.scaled_dot_product_attention(queries, keys, values, attn_mask=seen)
        return mixed.transpose(1, 2).flatten(-2)


def _rotation(at: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines of rotary positions (Su et al. 2021), each (sequences, 1, n, size / 2)."""
    frequencies = 10_000.0 ** (-torch.arange(0, size, 2) / size)
    angles = at[:, None, :, None] * frequencies
    return angles.cos(), angles.sin()


def _turned(x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    cos, sin = turn
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, first * sin + second * cos), dim=-1)
