"""Attention of new tokens over slotted keys and values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from calibrate.passes.step import Part, Segment, lay_out

Attend = Callable[[Tensor, Tensor, Tensor, Segment], Tensor]
"""(queries [tokens, heads, dim], keys, values [pool, kv_heads, dim], segment) -> like queries."""

ROPE_BASE = 1_000_000.0


def rope_table(positions: int, dim: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """``[positions, 2, 1, dim]``: cosines and sines, both halves (rotary embedding, 2104.09864)."""
    rates = ROPE_BASE ** (-torch.arange(0, dim, 2, device=device) / dim)
    angles = torch.outer(torch.arange(positions, device=device).float(), rates).repeat(1, 2)
    return torch.stack((angles.cos(), angles.sin()), 1)[:, :, None].to(dtype)


def rotate(x: Tensor, cos_sin: Tensor) -> Tensor:
    """Turn ``x [tokens, heads, dim]`` by the rows ``[tokens, 2, 1, dim]`` of the table."""
    low, high = x.chunk(2, -1)
    return x * cos_sin[:, 0] + torch.cat((-high, low), -1) * cos_sin[:, 1]


def attend_sdpa(q: Tensor, keys: Tensor, values: Tensor, segment: Segment) -> Tensor:
    """Masked SDPA per group of like lengths.

    The queries that share a KV head become further query rows of it, so that each key is read once.
    """
    part, kv_heads, dim = segment.part, keys.shape[1], keys.shape[2]
    shared = q.shape[1] // kv_heads
    rows = q.reshape(part.rows, part.width, kv_heads, shared, dim).permute(0, 2, 3, 1, 4)
    rows = rows.reshape(part.rows, kv_heads, shared * part.width, dim)
    k, v = (_slotted(pool, segment) for pool in (keys, values))
    outs = []
    for group in segment.groups:
        at = slice(group.first, group.last)
        near = (k[at, : group.keys].transpose(1, 2), v[at, : group.keys].transpose(1, 2))
        outs.append(functional.scaled_dot_product_attention(rows[at], *near, attn_mask=group.mask))
    out = torch.cat(outs) if len(outs) > 1 else outs[0]
    out = out.view(part.rows, kv_heads, shared, part.width, dim).permute(0, 3, 1, 2, 4)
    return out.reshape(part.tokens, kv_heads * shared, dim)


def attend_varlen(q: Tensor, keys: Tensor, values: Tensor, segment: Segment) -> Tensor:
    """FlashAttention over the used part of every slot, without a mask."""
    from torch.nn.attention.varlen import varlen_attn

    part, flat = segment.part, slice(segment.base, segment.base + segment.part.rows * segment.slot)
    window = (-1, -1) if part.block else (-1, 0)
    options: dict[str, Any] = {"window_size": window, "enable_gqa": True, "seqused_k": segment.used}
    out: Any = varlen_attn(
        q,
        keys[flat],
        values[flat],
        segment.query_starts,
        segment.key_starts,
        part.width,
        segment.slot,
        **options,
    )
    result: Tensor = out
    return result


def _slotted(pool: Tensor, segment: Segment) -> Tensor:
    size = segment.part.rows * segment.slot
    return pool[segment.base : segment.base + size].view(segment.part.rows, segment.slot, *pool.shape[1:])


def choose_attention(device: torch.device, dtype: torch.dtype, heads: int, kv_heads: int, dim: int) -> str:
    """``varlen`` where this torch has it and it agrees with masked SDPA on this device, else ``sdpa``."""
    if device.type != "cuda":
        return "sdpa"
    return "varlen" if _agrees(attend_varlen, device, dtype, (heads, kv_heads, dim)) else "sdpa"


def _agrees(attend: Attend, device: torch.device, dtype: torch.dtype, sizes: tuple[int, int, int]) -> bool:
    heads, kv_heads, dim = sizes
    step = lay_out([Part((5, 20, 33), 3)], device, dtype, shared=heads // kv_heads)
    segment = step.segments[0]
    generator = torch.Generator(device).manual_seed(0)

    def draw(*size: int) -> Tensor:
        return torch.randn(*size, generator=generator, device=device).to(dtype)

    q = draw(step.tokens, heads, dim)
    keys, values = (draw(step.cache_tokens, kv_heads, dim) for _ in range(2))
    try:
        got = attend(q, keys, values, segment)
    except (RuntimeError, TypeError, ImportError, AttributeError, ValueError):
        return False
    return bool(torch.allclose(got, attend_sdpa(q, keys, values, segment), atol=0.03))


KERNELS: dict[str, Attend] = {"sdpa": attend_sdpa, "varlen": attend_varlen}
