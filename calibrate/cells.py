"""What a calibration measures: cells, and the samples taken of each.

A cell is one pass at one shape. Cells are plain data, so that grids, timers, fits and files meet
in this one form whether a GPU, a CPU or a fake clock took the time. This module is free of torch.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

PassName = Literal[
    "verify",
    "draft_first",
    "draft_next",
    "draft_block",
    "accept",
    "prefill",
    "mixed",
    "round",
    "host",
    "collective",
]
Execution = Literal["cuda_graph", "eager", "cpu"]


class Cell(BaseModel):
    """One pass at one shape.

    ``sequences`` decode rows of ``width`` tokens each (width = k + 1 for ``verify``), at a mean KV
    length of ``context`` tokens before the pass; ``chunk`` prefill tokens beside them (passes
    ``prefill`` and ``mixed``) that start at KV length ``prefix``. ``drafter`` names the drafter for
    draft passes and whole rounds, "" for the target's own.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    pass_: PassName = Field(alias="pass")
    sequences: int = Field(ge=0)
    width: int = Field(ge=0)
    context: int = Field(ge=0)
    chunk: int = Field(default=0, ge=0)
    prefix: int = Field(default=0, ge=0)
    execution: Execution = "cpu"
    drafter: str = ""

    @property
    def tokens(self) -> int:
        """Tokens in the pass."""
        return self.sequences * self.width + self.chunk

    @property
    def shape(self) -> dict[str, float]:
        """The variables of ``calibrate.profile`` for this cell."""
        rows = self.sequences * self.width
        return {
            "tokens": self.tokens,
            "sequences": self.sequences + (1 if self.chunk else 0),
            "logits": rows + (1 if self.chunk else 0),
            "context_tokens": self.sequences * (self.context + self.width),
            "query_context_tokens": rows * (self.context + self.width),
            "prefill_pairs": self.chunk * self.prefix + self.chunk * (self.chunk + 1) // 2,
        }


class Measured(BaseModel):
    """A cell with its samples.

    ``samples_us`` are microseconds per pass, one per timed window, in order of measurement.
    ``ci_us`` is the 95 % order-statistic interval of the median. ``flags`` names what a reader must
    know: ``capped`` (stopped at the time cap), ``oom``, ``throttled``, ``layers`` (timed by distinct
    layers), ``anchor``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    cell: Cell
    samples_us: tuple[float, ...] = Field(min_length=1)
    median_us: float = Field(gt=0)
    ci_us: tuple[float, float]
    clock_mhz: tuple[float, float] | None = None
    round: int = Field(default=0, ge=0, description="which pass over the shuffled grid")
    flags: tuple[str, ...] = ()
