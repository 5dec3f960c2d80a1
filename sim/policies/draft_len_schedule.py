"""``draft_len_schedule``: TensorRT-LLM's schedule over the batch, and its gate that shuts for good.

Rule of TensorRT-LLM. Schedule (PR #10860; ``get_draft_len_for_batch_size`` in
tensorrt_llm/_torch/speculative/utils.py): ``{"4": 4, "8": 2, "32": 1}`` drafts 4 tokens up to 4
requests, 2 up to 8, 1 up to 32 and none above the last key. ``max_concurrency`` is the schedule of one
key: ``k`` up to it, none above; the two exclude each other (llmapi/llm_args.py). Gate (PR #12905;
tensorrt_llm/_torch/speculative/speculation_gate.py): each step that verified drafts gives one sample,
accepted / drafted over its whole batch; once ``acceptance_rate_window_size`` samples are there and the
mean of the last so many is below ``acceptance_rate_threshold``, drafting is off for the rest of the run.
(Before #12905 the gate averaged accepted tokens per round over finished requests.) Granularity: whole
batch, every step. Inputs: scheduled requests, acceptance history.

There a step's own batch cuts or pads the drafts that it verifies; here the depth is chosen at the end
of the step before, from that step's batch. Keys are numbers in quotes, as YAML here takes text alone.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from itertools import pairwise
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from sim.policies.base import Outcome
from sim.policies.by_batch import ByBatch
from sim.policies.config import Bounds, PolicyConfig

Rows = tuple[tuple[int, int], ...]
"""(largest batch, k) rising by batch; depth 0 above the last."""
_NO_END = 2**62


class Gate:
    """Whether drafting is off for good, from one acceptance rate per step."""

    def __init__(self, threshold: float, window: int) -> None:
        self.threshold, self.window = threshold, window
        self.rates: deque[float] = deque()
        self.total = 0.0
        self.shut = False

    def learn(self, rate: float) -> None:
        """Take one more step's rate; shut if the last ``window`` of them are too low."""
        self.rates.append(rate)
        self.total += rate
        if len(self.rates) > self.window:
            self.total -= self.rates.popleft()
        if len(self.rates) == self.window and self.total / self.window < self.threshold:
            self.shut = True


class DraftLenSchedule(ByBatch):
    """Depth by batch size until the gate, if there is one, shuts."""

    def __init__(self, rows: Rows, max_depth: int, gate: Gate | None) -> None:
        self.sizes = [size for size, _ in rows]
        self.depths = [*(min(k, max_depth) for _, k in rows), 0]
        self.gate = gate
        self.wants_outcomes = gate is not None

    def depth_at(self, size: int) -> int:
        """The schedule's depth, none once the gate is shut."""
        if self.gate is not None and self.gate.shut:
            return 0
        return self.depths[bisect_left(self.sizes, size)]

    def observe(self, outcome: Outcome) -> None:
        """Show the gate the step's acceptance rate, if it had drafts."""
        drafted = int(outcome.drafted.sum())
        if self.gate is not None and drafted:
            self.gate.learn(int(outcome.accepted.sum()) / drafted)


class DraftLenScheduleConfig(PolicyConfig):
    """Depth from a schedule of batch sizes, off for good at poor acceptance (TensorRT-LLM)."""

    policy: Literal["draft_len_schedule"]
    schedule: dict[Annotated[int, Field(ge=1)], Annotated[int, Field(ge=0, le=64)]] | None = Field(
        default=None, min_length=1, description='largest batch: k, as in {"4": 4, "8": 2, "32": 1}'
    )
    k: int | None = Field(default=None, ge=1, le=64, description="one depth instead of a schedule")
    max_concurrency: int | None = Field(default=None, ge=1, description="with k: no drafts above this batch")
    acceptance_rate_threshold: float | None = Field(
        default=None, ge=0, le=1, description="accepted / drafted below which drafting ends for good"
    )
    acceptance_rate_window_size: int | None = Field(
        default=None, ge=1, description="steps with drafts that the rate is averaged over"
    )

    @field_validator("schedule")
    @classmethod
    def _rising(cls, schedule: dict[int, int] | None) -> dict[int, int] | None:
        if schedule is None:
            return None
        rows = sorted(schedule.items())
        if max(k for _, k in rows) > rows[0][1]:
            raise ValueError(f"the smallest batch, {rows[0][0]}, must have the largest k, as in TensorRT-LLM")
        return dict(rows)

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if (self.schedule is None) == (self.k is None):
            raise ValueError('needs either schedule, as in {"4": 4, "8": 2, "32": 1}, or k')
        if self.schedule is not None and self.max_concurrency is not None:
            raise ValueError(
                "max_concurrency goes with k; a schedule drafts nothing above its last key anyway"
            )
        if (self.acceptance_rate_threshold is None) != (self.acceptance_rate_window_size is None):
            raise ValueError("acceptance_rate_threshold and acceptance_rate_window_size go together")
        return self

    @property
    def rows(self) -> Rows:
        """The schedule, whichever way it was given."""
        if self.schedule is not None:
            return tuple(self.schedule.items())
        return ((self.max_concurrency or _NO_END, self.k or 0),)

    def build(self, bounds: Bounds) -> DraftLenSchedule:
        """The policy, its depths cut to what the engine allows."""
        threshold, window = self.acceptance_rate_threshold, self.acceptance_rate_window_size
        gate = Gate(threshold, window) if threshold is not None and window is not None else None
        return DraftLenSchedule(self.rows, bounds.max_depth, gate)

    @property
    def title(self) -> str:
        """Name in tables: the label, or the schedule and the gate."""
        rows = " ".join(f"{size}:{k}" if size < _NO_END else f"k={k}" for size, k in self.rows)
        gate = f", off below {self.acceptance_rate_threshold}" if self.acceptance_rate_window_size else ""
        return self.label or f"{self.policy}({rows}{gate})"

    @property
    def depth(self) -> int:
        """The deepest entry."""
        return max(k for _, k in self.rows)

    @property
    def thresholds(self) -> tuple[int, ...]:
        """Batch sizes at which the depth changes, for the linter."""
        rows = (*self.rows, (_NO_END, 0))
        return tuple(a[0] + 1 for a, b in pairwise(rows) if a[1] != b[1] and a[0] < _NO_END)
