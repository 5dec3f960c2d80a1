"""Where the tokens of one pass sit: rows, positions, cache slots and masks, all fixed in advance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

SPREAD = 0.25
"""KV lengths lie evenly between 1 - SPREAD and 1 + SPREAD of their mean."""

GROUPS = 4
"""A batch of at least ``GROUPS`` sequences is attended to in so many parts of like length."""

ALIGN = 16
"""Slots and masks are this many tokens' multiples, as fused attention kernels want strides."""


def spread(mean: int, rows: int) -> list[int]:
    """``rows`` lengths around ``mean``, rising, as far apart as whole numbers allow."""
    if rows <= 1:
        return [mean] * rows
    return [round(mean * (1 + SPREAD * (2 * i / (rows - 1) - 1))) for i in range(rows)]


FALL_BACK = 64
"""Wider rows than this are no drafts: one state is kept of them, as of a prefill chunk."""


@dataclass(frozen=True)
class Part:
    """Sequences with ``width`` new tokens each, behind ``lengths`` cached ones (rising).

    ``verified`` rows want logits, and a recurrent state to fall back to, after every new token;
    others after the last only. In a ``block`` every new token sees all others (not only earlier
    ones) and all but the first want logits.
    """

    lengths: Sequence[int]
    width: int
    verified: bool = True
    block: bool = False

    @property
    def rows(self) -> int:
        """Sequences."""
        return len(self.lengths)

    @property
    def tokens(self) -> int:
        """New tokens."""
        return self.rows * self.width

    @property
    def kept(self) -> int:
        """Recurrent states written."""
        return self.tokens if self.verified and self.width <= FALL_BACK else self.rows


@dataclass(frozen=True)
class Group:
    """Rows ``first`` to ``last`` of a segment read ``keys`` slots each under ``mask``.

    The mask is additive, ``[rows, 1, shared * width, keys]``: query heads of one KV head are rows.
    """

    first: int
    last: int
    keys: int
    mask: Tensor


@dataclass(frozen=True)
class Segment:
    """One ``Part`` laid out.

    ``token``, ``base``, ``state`` and ``kept`` are its first token in the pass, cache token, state
    row and checkpoint; ``slot`` is the size of a sequence's slot, ``used`` the keys each row reads.
    """

    part: Part
    token: int
    base: int
    slot: int
    state: int
    kept: int
    used: Tensor
    query_starts: Tensor
    key_starts: Tensor
    groups: tuple[Group, ...]


@dataclass(frozen=True)
class Step:
    """Static inputs of a pass over all its tokens.

    ``positions`` and ``slots`` (flat cache index written) have one entry per token; ``wanted``
    picks the tokens whose logits are wanted.
    """

    positions: Tensor
    slots: Tensor
    wanted: Tensor
    segments: tuple[Segment, ...]
    cache_tokens: int
    state_rows: int
    kept: int

    @property
    def tokens(self) -> int:
        """Tokens in the pass."""
        return sum(segment.part.tokens for segment in self.segments)


def lay_out(
    parts: Sequence[Part], device: torch.device, dtype: torch.dtype, shared: int = 0, slot: int = 0
) -> Step:
    """Give every part its slots, one after another.

    Masks are made for ``shared`` query heads to a KV head (0: none are needed); ``slot`` sets a
    larger slot size than these parts need.
    """
    segments: list[Segment] = []
    token = base = state = kept = 0
    for part in parts:
        size = max(slot, aligned(max(part.lengths, default=0) + part.width))
        groups = _groups(part, device, dtype, shared) if shared else ()
        segments.append(Segment(part, token, base, size, state, kept, *_starts(part, size, device), groups))
        token, base, state = token + part.tokens, base + part.rows * size, state + part.rows
        kept += part.kept
    return Step(
        positions=torch.cat([_positions(s, device) for s in segments]),
        slots=torch.cat([_slots(s, device) for s in segments]),
        wanted=torch.cat([_wanted(s, device) for s in segments]),
        segments=tuple(segments),
        cache_tokens=base,
        state_rows=state,
        kept=kept,
    )


def aligned(tokens: int) -> int:
    """``tokens`` rounded up to a slot size."""
    return -(-tokens // ALIGN) * ALIGN


def _starts(part: Part, slot: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Keys in use per row, and the first query and key of each, as varlen kernels want them."""
    rows = torch.arange(part.rows + 1, dtype=torch.int32, device=device)
    used = torch.tensor([n + part.width for n in part.lengths], dtype=torch.int32, device=device)
    return used, rows * part.width, rows * slot


def _positions(segment: Segment, device: torch.device) -> Tensor:
    lengths = torch.tensor(list(segment.part.lengths), dtype=torch.long, device=device)
    return (lengths[:, None] + torch.arange(segment.part.width, device=device)).flatten()


def _slots(segment: Segment, device: torch.device) -> Tensor:
    rows = torch.arange(segment.part.rows, device=device) * segment.slot + segment.base
    return rows.repeat_interleave(segment.part.width) + _positions(segment, device)


def _wanted(segment: Segment, device: torch.device) -> Tensor:
    part = segment.part
    tokens = torch.arange(segment.token, segment.token + part.tokens, device=device)
    rows = tokens.view(part.rows, part.width)
    if part.block:
        return rows[:, 1:].flatten()
    return tokens if part.verified else rows[:, -1]


def _groups(part: Part, device: torch.device, dtype: torch.dtype, shared: int) -> tuple[Group, ...]:
    """Neighbours in length share a mask, so that little is read beyond a sequence's own keys."""
    count = GROUPS if part.rows >= GROUPS else 1
    edges = [part.rows * i // count for i in range(count + 1)]
    return tuple(_group(part, a, b, device, dtype, shared) for a, b in pairwise(edges))


def _group(part: Part, first: int, last: int, device: torch.device, dtype: torch.dtype, shared: int) -> Group:
    keys = aligned(part.lengths[last - 1] + part.width)
    lengths = torch.tensor(part.lengths[first:last], device=device)[:, None, None]
    reach = torch.full((part.width,), part.width - 1) if part.block else torch.arange(part.width)
    limit = lengths + reach.to(device)[None, :, None]
    hidden = torch.arange(keys, device=device)[None, None, :] > limit
    mask = torch.zeros(hidden.shape, device=device, dtype=dtype).masked_fill_(hidden, float("-inf"))
    return Group(first, last, keys, mask.repeat(1, shared, 1)[:, None])
