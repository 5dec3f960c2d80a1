"""``sglang_ema``: candidate depths climbed up and down by a moving average of accepted drafts.

Rule of SGLang's ``--speculative-adaptive``, strategy ``ema`` (python/sglang/srt/speculative/
adaptive_spec_params.py at 015c872, defaults of that file; EAGLE chains alone there). The batch size
selects a slot: the one with the largest key at or below it. A slot has candidate depths, a current
one, and a moving average of the drafts accepted per request, which starts at its depth - 1. Each
verified batch moves the average of its slot by ``ema_alpha``; after ``warmup_batches`` of them, at every
``update_interval``-th, the slot goes down while the average is at most the next lower candidate - 0.5
(+ 0.5 for candidate 0) plus ``down_hysteresis``; if it did not go down, up while the average is above its
own candidate - 0.5 plus ``up_hysteresis``. At depth 0 the average rests and every update tries the next
candidate. Granularity: whole batch. Inputs: batch size, accepted drafts; no cost.

Left out: ``ceiling_coeff`` (0 by default: off), and padding of the batch to a captured size before the
slot is chosen. Outcomes reach the slot one step after the depth was chosen, as with SGLang's
overlapped scheduler; one that verified nothing counts as a batch in slots at depth 0 alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Final, Literal

import numpy as np
from pydantic import Field, field_validator

from sim.policies.base import Batch, Depths, Outcome, PolicyDefaults
from sim.policies.config import Bounds, PolicyConfig
from sim.policies.per_batch_size import row_at
from sim.units import Config

Steps = tuple[Annotated[int, Field(ge=0, le=64)], ...]
Floor = Annotated[int, Field(ge=1)]


def usable(candidates: Iterable[int], max_depth: int) -> list[int]:
    """Candidates cut to what the engine allows, rising, each once."""
    return sorted({min(step, max_depth) for step in candidates})


def first_candidate(candidates: Sequence[int], start: int) -> int:
    """SGLang's first depth: ``start`` if it is a candidate, else the middle one."""
    return start if start in candidates else candidates[len(candidates) // 2]


def shown_slots(slots: Iterable[tuple[int, Sequence[int]]]) -> str:
    """Slots for tables: ``1:1,3,5 8:1,3``."""
    return " ".join(f"{floor}:{','.join(map(str, steps))}" for floor, steps in slots)


class EmaSlot(Config):
    """Candidate depths from one batch size on, and how readily they change."""

    candidate_steps: Steps = Field(min_length=1, description="depths to choose among")
    up_hysteresis: float = Field(default=0.0, description="added to the average needed to go deeper")
    down_hysteresis: float = Field(default=-0.25, description="added to the average that goes shallower")


class Slot:
    """One slot at work: its depth and its moving average."""

    def __init__(self, config: EmaSlot, start: int, max_depth: int) -> None:
        self.steps = usable(config.candidate_steps, max_depth)
        self.at = self.steps.index(first_candidate(self.steps, min(start, max_depth)))
        self.up, self.down = config.up_hysteresis, config.down_hysteresis
        self.average = float(self.depth - 1)
        self.batches = 0

    @property
    def depth(self) -> int:
        """The current candidate."""
        return self.steps[self.at]

    def update(self) -> None:
        """Move to the candidate that the average asks for."""
        if self.depth == 0:
            self._probe()
        elif not self._fallen():
            while self.at < len(self.steps) - 1 and self.average > self.depth - 0.5 + self.up:
                self.at += 1

    def _fallen(self) -> bool:
        """Go down as far as the average says; whether that was anywhere."""
        before = self.at
        while self.at > 0 and self.average <= self._drop_at(self.steps[self.at - 1]):
            self.at -= 1
        return self.at < before

    def _drop_at(self, lower: int) -> float:
        """The average at which the next lower candidate is taken."""
        return (lower - 0.5 if lower else 0.5) + self.down

    def _probe(self) -> None:
        """Try the smallest drafting candidate; a slot that never drafted assumes its start value."""
        self.at = min(self.at + 1, len(self.steps) - 1)
        if self.depth and self.average < 0:
            self.average = float(self.depth - 1)


class SglangEma(PolicyDefaults):
    """Depth of the batch's slot."""

    wants_outcomes = True

    def __init__(self, slots: dict[int, Slot], alpha: float, interval: int, warmup: int) -> None:
        self.floors, self.slots = list(slots), list(slots.values())
        self.alpha, self.interval, self.warmup = alpha, interval, warmup

    def draft_depths(self, batch: Batch) -> Depths:
        """The current depth of the slot for this batch size."""
        return self._slot(batch.sequences).depth

    def observe(self, outcome: Outcome) -> None:
        """Teach the slot of the verified batch."""
        tried = outcome.drafted > 0
        n = int(np.count_nonzero(tried))
        slot = self._slot(n or len(outcome.request))
        if n and slot.depth:
            newest = float(outcome.accepted[tried].mean())
            slot.average = (1 - self.alpha) * slot.average + self.alpha * newest
        if n or (len(outcome.request) and not slot.depth):
            self._count(slot)

    def _count(self, slot: Slot) -> None:
        slot.batches += 1
        past = slot.batches - self.warmup
        if past > 0 and past % self.interval == 0:
            slot.update()

    def _slot(self, n: int) -> Slot:
        return self.slots[row_at(self.floors, n)]


DEFAULT_SLOTS: Final = {
    1: EmaSlot(candidate_steps=(1, 3, 5, 7)),
    8: EmaSlot(candidate_steps=(0, 1, 3), down_hysteresis=0.0),
    32: EmaSlot(candidate_steps=(0, 1), down_hysteresis=0.0),
    64: EmaSlot(candidate_steps=(0,), down_hysteresis=0.0),
}


class SglangEmaConfig(PolicyConfig):
    """Depth from a moving average of accepted drafts per batch size (SGLang adaptive, ema)."""

    policy: Literal["sglang_ema"]
    slots: dict[Floor, EmaSlot] = Field(
        default=DEFAULT_SLOTS,
        min_length=1,
        description='smallest batch: slot, as in {"1": {candidate_steps: [1, 3]}, "8": {...}}',
    )
    start: int = Field(default=3, ge=0, le=64, description="first depth, where it is a candidate")
    ema_alpha: float = Field(default=0.2, gt=0, le=1, description="weight of the newest batch in the average")
    update_interval: int = Field(default=5, ge=1, description="batches of a slot between changes")
    warmup_batches: int = Field(default=10, ge=0, description="batches of a slot before the first change")

    @field_validator("slots")
    @classmethod
    def _rising(cls, slots: dict[int, EmaSlot]) -> dict[int, EmaSlot]:
        return dict(sorted(slots.items()))

    def build(self, bounds: Bounds) -> SglangEma:
        """The policy, its candidates cut to what the engine allows."""
        slots = {floor: Slot(slot, self.start, bounds.max_depth) for floor, slot in self.slots.items()}
        return SglangEma(slots, self.ema_alpha, self.update_interval, self.warmup_batches)

    @property
    def title(self) -> str:
        """Name in tables: the label, or the slots if they are not SGLang's."""
        if self.label or self.slots == DEFAULT_SLOTS:
            return super().title
        slots = ((floor, slot.candidate_steps) for floor, slot in self.slots.items())
        return f"{self.policy}({shown_slots(slots)})"

    @property
    def depth(self) -> int:
        """The deepest candidate."""
        return max(max(slot.candidate_steps) for slot in self.slots.values())

    @property
    def thresholds(self) -> tuple[int, ...]:
        """Batch sizes at which another slot begins, for the linter."""
        return tuple(self.slots)[1:]
