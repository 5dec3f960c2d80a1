"""What a measured profile says about itself: how it was timed, and how far its fit is off.

Plain data that ``calibrate.profile`` keeps in its files; free of torch and of numpy.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

Mode = Literal["fit", "exact"]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Machine(_Frozen):
    """Where a measurement ran, as the machine reported it; "" and () where it did not say."""

    driver: str = ""
    cuda: str = ""
    torch: str = ""
    python: str = ""
    host_cpu: str = ""
    sm_clock_mhz: tuple[float, ...] = Field(default=(), description="lowest, median, highest while measuring")
    memory_clock_mhz: float = Field(default=0.0, ge=0)
    throttle_reasons: tuple[str, ...] = ()
    revision: str = Field(default="", description="git revision of leadline, where there is one")


class Method(_Frozen):
    """How the cells were timed."""

    clock: str = Field(description="cuda_event, wall or cpu")
    warm_up: str = ""
    stop_rule: str = ""
    order: str = ""
    seed: int = 0
    threads: int | None = None
    sampling: str = "greedy"
    accept: str = Field(default="pinned", description="whether positions advance while a cell is timed")
    data: str = Field(default="", description="weights, ids and KV that the passes ran on")
    layers: str = Field(default="", description="what was timed when the model does not fit, else empty")


class Spread(_Frozen):
    """Unsigned errors over ``count`` cells, in percent."""

    mean: float = Field(ge=0)
    p90: float = Field(ge=0)
    max: float = Field(ge=0)
    count: int = Field(gt=0)

    def __str__(self) -> str:
        return f"mean {self.mean:.1f} %, p90 {self.p90:.1f} %, max {self.max:.1f} % over {self.count} cells"


class Range(_Frozen):
    """The measured domain in one variable."""

    lowest: float
    highest: float


class FitReport(_Frozen):
    """How well the terms of one pass say what was measured.

    ``noise`` is the split-half difference: medians of even against odd samples of the same cell.
    ``leave_one_out`` predicts every cell from all others, ``leave_sequences_out`` and
    ``leave_context_out`` from the cells of other batch sizes and contexts. ``exact`` is the
    leave-one-out error of the exact terms. ``residual`` is the share of the measured deviation from
    the physical form that the fitted curve follows (0: that form alone), chosen by ``leave_one_out``.
    ``coefficients`` are in ns per unit; ``ridge_tokens`` is where memory and compute time meet,
    None where none was found inside the measured range.
    """

    cells: int = Field(gt=0)
    excluded: int = Field(default=0, ge=0, description="cells left out: out of memory or throttled")
    coefficients: dict[str, float] = Field(default_factory=dict)
    ridge_tokens: float | None = None
    residual: float = Field(default=0.0, ge=0, le=1)
    domain: dict[str, Range] = Field(default_factory=dict)
    noise: Spread | None = None
    in_sample: Spread | None = None
    leave_one_out: Spread | None = None
    leave_sequences_out: Spread | None = None
    leave_context_out: Spread | None = None
    exact: Spread | None = None
    drift_percent: float | None = Field(default=None, ge=0)
    worst: str = Field(default="", description="the cell with the largest leave-one-out error")
