"""Where the tokens of an engine's pass sit: rows of unequal widths over the slots of running sequences.

The form is that of ``calibrate.passes.step``, so the very layers that calibration times run here.
Decodes are attended to together over their neighbouring slots; where their widths differ or a slot
lies idle between them, queries (and nothing else) are padded. A prefill chunk is attended to alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from calibrate.passes.attention import Attend, attend_sdpa
from calibrate.passes.step import GROUPS, Group, Part, Segment, Step, aligned


@dataclass(frozen=True)
class Rows:
    """One entry per sequence in a pass: its slot, its first new position, and how many tokens it has.

    The first ``together`` rows are attended to together, each further row alone.
    """

    slots: list[int]
    starts: list[int]
    widths: list[int]
    together: int

    @property
    def tokens(self) -> int:
        """Tokens in the pass."""
        return sum(self.widths)

    @property
    def offsets(self) -> list[int]:
        """Where each row's tokens begin in the pass."""
        return [0, *accumulate(self.widths)][:-1]


@dataclass(frozen=True)
class _Ragged(Part):
    """Rows of unequal widths."""

    real: int = 0

    @property
    def tokens(self) -> int:
        return self.real


@dataclass(frozen=True)
class RaggedSegment(Segment):
    """A segment whose queries are spread to ``index`` of the ``padded`` one."""

    padded: Segment
    index: Tensor


class Layout:
    """Lays out passes over slots of ``slot_tokens``, with masks for ``shared`` query heads to a KV head."""

    def __init__(self, slot_tokens: int, shared: int, device: torch.device, dtype: torch.dtype) -> None:
        self.slot, self.shared, self.device = aligned(slot_tokens), shared, device
        hidden = torch.ones(self.slot, self.slot, dtype=torch.bool, device=device).triu_(1)
        self.causal = torch.zeros(hidden.shape, dtype=dtype, device=device)
        self.causal.masked_fill_(hidden, float("-inf"))

    def __call__(self, rows: Rows, wanted: list[int]) -> Step:
        """The step of a pass whose tokens ``wanted`` (of all, in order) give logits."""
        positions = self._tensor(positions_of(rows))
        bases = [
            slot * self.slot
            for slot, width in zip(rows.slots, rows.widths, strict=True)
            for _ in range(width)
        ]
        return Step(
            positions=positions,
            slots=positions + self._tensor(bases),
            wanted=self._tensor(wanted),
            segments=tuple(self._segments(rows, positions)),
            cache_tokens=0,
            state_rows=0,
            kept=0,
        )

    def _segments(self, rows: Rows, positions: Tensor) -> list[Segment]:
        segments = [self._decodes(rows)] if rows.together else []
        for row in range(rows.together, len(rows.slots)):
            token, width = rows.offsets[row], rows.widths[row]
            part = Part((rows.starts[row],), width)
            mask = self._mask(positions[token : token + width].view(1, width), part)
            segments.append(self._segment(part, token, rows.slots[row], (mask,)))
        return segments

    def _decodes(self, rows: Rows) -> Segment:
        """All decodes as one segment over the slots from the first of them to the last."""
        slots, widths = rows.slots[: rows.together], rows.widths[: rows.together]
        first, places, width = min(slots), max(slots) - min(slots) + 1, max(widths)
        starts = [0] * places
        for slot, start in zip(slots, rows.starts, strict=False):
            starts[slot - first] = start
        part = Part(starts, width)
        at = self._tensor(starts)[:, None] + torch.arange(width, device=self.device)
        padded = self._segment(part, 0, first, self._groups(part, at))
        if slots == list(range(first, first + places)) and min(widths) == width:
            return padded
        index = [(s - first) * width + j for s, w in zip(slots, widths, strict=True) for j in range(w)]
        ragged = _Ragged(starts, width, real=sum(widths))
        return RaggedSegment(**{**vars(padded), "part": ragged}, padded=padded, index=self._tensor(index))

    def _groups(self, part: Part, at: Tensor) -> tuple[Group, ...]:
        """Neighbouring slots share a mask, in as many parts as calibration cuts a batch into."""
        count = GROUPS if part.rows >= GROUPS else 1
        edges = [part.rows * i // count for i in range(count + 1)]
        return tuple(self._mask(at[a:b], Part(part.lengths[a:b], part.width), a) for a, b in pairwise(edges))

    def _mask(self, at: Tensor, part: Part, first: int = 0) -> Group:
        """``at [rows, width]`` are the positions of the queries."""
        keys = min(aligned(max(part.lengths) + part.width), self.slot)
        mask = self.causal[at.flatten(), :keys].view(part.rows, part.width, keys)
        return Group(first, first + part.rows, keys, mask.repeat(1, self.shared, 1)[:, None])

    def _segment(self, part: Part, token: int, slot: int, groups: tuple[Group, ...]) -> Segment:
        none = torch.empty(0)  # for kernels that know each row's keys by themselves
        return Segment(part, token, slot * self.slot, self.slot, 0, 0, none, none, none, groups)

    def _tensor(self, values: list[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.long, device=self.device)


def positions_of(rows: Rows) -> list[int]:
    """The position of every token of a pass in its sequence."""
    pairs = zip(rows.starts, rows.widths, strict=True)
    return [start + j for start, width in pairs for j in range(width)]


@dataclass(frozen=True)
class Attention:
    """Masked SDPA over what this module lays out; ``timed`` over what calibration does."""

    timed: Attend

    def __call__(self, q: Tensor, keys: Tensor, values: Tensor, segment: Segment) -> Tensor:
        """Attend, as ``calibrate.passes.attention.Attend``."""
        if isinstance(segment, RaggedSegment):
            part = segment.padded.part
            spread = q.new_zeros(part.rows * part.width, *q.shape[1:])
            spread[segment.index] = q
            return attend_sdpa(spread, keys, values, segment.padded)[segment.index]
        # Only a segment of this module leaves out the keys in use.
        return (self.timed if len(segment.used) else attend_sdpa)(q, keys, values, segment)


def over_slots(attend: Attend) -> Attention:
    """The attention of a layer, taught once to take this module's segments."""
    return attend if isinstance(attend, Attention) else Attention(attend)
