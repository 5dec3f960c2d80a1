"""``sglang_throughput_aware``: the candidate depth with the most expected tokens per profiled time.

Rule of SGLang's ``--speculative-adaptive``, strategy ``throughput_aware`` (python/sglang/srt/speculative/
throughput_aware_controller.py and throughput_aware_spec_params.py, of the version whose config has the
key ``strategy``; its defaults). One depth for the engine; the batch size selects the candidates (largest
key at or below it). Each verified batch adds, for every draft position, the share of requests that
accepted it to a window of ``window_size`` batches, whatever the batch size. Every ``update_interval``
verified batches, if the windows of the current depth are full, ``score(S) = (1 + sum of the windows'
means up to S) / T(n, S)`` is compared over the candidates; another depth is taken if its score is more
than (1 + ``switch_hysteresis``) times the current one's. A current depth that is no candidate at this
batch size is replaced at once by the best one (the middle one before any data). Candidates are above 0:
drafting is never switched off. Granularity: whole batch. Inputs: batch size, acceptance history, cost
tables at ``profile_context`` tokens per request.

Going shallower forgets the positions given up; positions without data continue the fall of the known
ones geometrically, and a single known one flat. So depth 1 judges deeper ones by its first draft alone
and may go back and forth between them; SGLang's code does the same.

``T`` is this engine's round time at the very batch size; SGLang times each captured batch size at startup
and looks up the next larger one. An older version had no hysteresis, compared every 10 batches and timed
contexts of up to 2,048 tokens.
"""

from __future__ import annotations

from collections import deque
from typing import Annotated, Final, Literal

import numpy as np
from pydantic import Field, field_validator

from sim.cost.step_cost import StepCost
from sim.policies.base import Batch, Depths, Outcome, PolicyDefaults
from sim.policies.config import Bounds, PolicyConfig
from sim.policies.per_batch_size import row_at
from sim.policies.sglang_ema import Floor, first_candidate, shown_slots, usable

Drafting = Annotated[tuple[Annotated[int, Field(ge=1, le=64)], ...], Field(min_length=1)]


class Windows:
    """Share of requests that accepted each draft position, over the last verified batches."""

    def __init__(self, positions: int, size: int) -> None:
        self.rates: list[deque[float]] = [deque(maxlen=size) for _ in range(positions)]
        self.size = size

    def add(self, outcome: Outcome) -> bool:
        """Take one verified batch; ``False`` if it verified nothing."""
        deepest = min(int(outcome.drafted.max(initial=0)), len(self.rates))
        position = np.arange(deepest)
        tried = (outcome.drafted[:, None] > position).sum(axis=0)
        accepted = (outcome.accepted[:, None] > position).sum(axis=0)
        for window, rate in zip(self.rates, (accepted / tried).tolist(), strict=False):
            window.append(rate)
        return deepest > 0

    def full(self, depth: int) -> bool:
        """Whether every position up to ``depth`` has a whole window."""
        return all(len(window) == self.size for window in self.rates[:depth])

    def clear_above(self, depth: int) -> None:
        """Forget the positions beyond ``depth``."""
        for window in self.rates[depth:]:
            window.clear()

    def means(self) -> list[float] | None:
        """Acceptance of every position, extrapolated where unknown; ``None`` before any data."""
        known: list[float] = []
        for window in self.rates:
            if not window and not known:
                return None
            known.append(sum(window) / len(window) if window else _next(known))
        return known


def _next(known: list[float]) -> float:
    """The mean after ``known``, falling as from the first to the last of them."""
    first, last = known[0], known[-1]
    if len(known) == 1 or first <= 0:
        return min(first, last)
    falling: float = (last / first) ** (1 / (len(known) - 1))
    return last * min(falling, 1.0)


class SglangThroughputAware(PolicyDefaults):
    """Argmax of expected tokens per time among the batch's candidates, with hysteresis."""

    wants_outcomes = True

    def __init__(
        self, slots: dict[int, list[int]], windows: Windows, config: SglangThroughputAwareConfig
    ) -> None:
        self.floors, self.candidates = list(slots), list(slots.values())
        self.windows, self.config = windows, config
        self.every = sorted({step for steps in self.candidates for step in steps})
        self.depth = config.start if config.start in self.every else first_candidate(self.candidates[0], -1)
        self.batches = 0
        self._cost: StepCost | None = None
        self._times: dict[int, dict[int, float]] = {}

    def draft_depths(self, batch: Batch) -> Depths:
        """The current depth, after the changes that are due."""
        if batch.sequences == 0:
            return self.depth
        candidates = self.candidates[row_at(self.floors, batch.sequences)]
        if self.depth not in candidates:
            middle = candidates[len(candidates) // 2]
            self._take(_best(self._scores(batch, candidates), middle))
        if self.batches >= self.config.update_interval:
            self.batches = 0
            if self.windows.full(self.depth):
                self._take(self._challenger(self._scores(batch, candidates)))
        return self.depth

    def observe(self, outcome: Outcome) -> None:
        """Add a verified batch to the windows."""
        self.batches += self.windows.add(outcome)

    def _challenger(self, scores: dict[int, float]) -> int:
        """The best candidate if it beats the current one by the margin, else the current one."""
        best = _best(scores, self.depth)
        worth = scores.get(best, 0.0) > scores.get(self.depth, 0.0) * (1 + self.config.switch_hysteresis)
        return best if worth else self.depth

    def _take(self, depth: int) -> None:
        if depth < self.depth:
            self.windows.clear_above(depth)
        self.depth = depth

    def _scores(self, batch: Batch, candidates: list[int]) -> dict[int, float]:
        """Expected tokens per ns of every candidate; empty before any data."""
        means = self.windows.means()
        if means is None:
            return {}
        times = self._round_ns(batch)
        return {step: (1 + sum(means[:step])) / times[step] for step in candidates}

    def _round_ns(self, batch: Batch) -> dict[int, float]:
        """Round time of every candidate at this batch size and the profiled context."""
        if batch.cost is not self._cost:
            self._cost, self._times = batch.cost, {}
        n = batch.sequences
        if n not in self._times:
            ns = batch.cost.round_ns(n, np.array(self.every), n * self.config.profile_context)
            self._times[n] = dict(zip(self.every, ns.tolist(), strict=True))
        return self._times[n]


def _best(scores: dict[int, float], otherwise: int) -> int:
    """The candidate with the highest score, the first of equal ones."""
    return max(scores, key=lambda step: scores[step]) if scores else otherwise


DEFAULT_CANDIDATES: Final[dict[int, tuple[int, ...]]] = {1: (1, 3, 5, 7)}


class SglangThroughputAwareConfig(PolicyConfig):
    """Candidate depth maximising expected tokens per profiled time (SGLang adaptive)."""

    policy: Literal["sglang_throughput_aware"]
    slots: dict[Floor, Drafting] = Field(
        default=DEFAULT_CANDIDATES,
        min_length=1,
        description='smallest batch: candidate depths, as in {"1": [1, 3, 5, 7], "32": [1, 3]}',
    )
    start: int = Field(default=3, ge=1, le=64, description="first depth, where it is a candidate")
    window_size: int = Field(
        default=20, ge=1, description="verified batches that acceptance is averaged over"
    )
    update_interval: int = Field(default=5, ge=1, description="verified batches between comparisons")
    switch_hysteresis: float = Field(default=0.1, ge=0, description="share by which a better score must win")
    profile_context: int = Field(
        default=128, ge=1, description="context tokens per request in the cost tables"
    )

    @field_validator("slots")
    @classmethod
    def _rising(cls, slots: dict[int, Drafting]) -> dict[int, Drafting]:
        return dict(sorted(slots.items()))

    def build(self, bounds: Bounds) -> SglangThroughputAware:
        """The policy, its candidates cut to what the engine allows."""
        slots = {floor: usable(steps, bounds.max_depth) for floor, steps in self.slots.items()}
        return SglangThroughputAware(
            slots, Windows(min(self.depth, bounds.max_depth), self.window_size), self
        )

    @property
    def title(self) -> str:
        """Name in tables: the label, or the candidates if they are not SGLang's."""
        if self.label or self.slots == DEFAULT_CANDIDATES:
            return super().title
        return f"{self.policy}({shown_slots(self.slots.items())})"

    @property
    def depth(self) -> int:
        """The deepest candidate."""
        return max(max(steps) for steps in self.slots.values())

    @property
    def thresholds(self) -> tuple[int, ...]:
        """Batch sizes at which other candidates begin, for the linter."""
        return tuple(self.slots)[1:]
