"""YAML vocabulary of lengths: ``workload.lengths``, told apart by ``type``; a number is constant."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, PositiveFloat, PositiveInt, model_validator

from sim.units import Config
from sim.workload.grids import QuantileGrid


class ConstantLength(Config):
    """Always ``tokens``."""

    type: Literal["constant"]
    tokens: PositiveInt


class UniformLength(Config):
    """Whole numbers from ``min`` to ``max``, both included, equally likely."""

    type: Literal["uniform"]
    min: PositiveInt
    max: PositiveInt

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.max < self.min:
            raise ValueError(f"max {self.max} is below min {self.min}")
        return self


class LognormalLength(Config):
    """Lognormal, rounded, then held between ``min`` and ``max``.

    Given by ``median`` and ``sigma`` (standard deviation of the logarithm), by ``mean`` and
    ``sigma`` (the mean before rounding and holding), or by ``p50`` and ``p90``.
    """

    type: Literal["lognormal"]
    median: PositiveFloat | None = None
    mean: PositiveFloat | None = None
    sigma: PositiveFloat | None = None
    p50: PositiveFloat | None = None
    p90: PositiveFloat | None = None
    min: PositiveInt = 1
    max: PositiveInt | None = None

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        given = {
            name for name in ("median", "mean", "sigma", "p50", "p90") if getattr(self, name) is not None
        }
        if given not in ({"median", "sigma"}, {"mean", "sigma"}, {"p50", "p90"}):
            raise ValueError("lognormal needs median and sigma, or mean and sigma, or p50 and p90")
        if self.p50 is not None and self.p90 is not None and self.p90 <= self.p50:
            raise ValueError(f"p90 {self.p90:g} must be above p50 {self.p50:g}")
        if self.max is not None and self.max < self.min:
            raise ValueError(f"max {self.max} is below min {self.min}")
        return self


class QuantileLength(Config):
    """A quantile grid: inline (``p`` from 0 to 1 and ``tokens``), or ``from`` a workload file.

    ``column`` picks the file's input or output grid; by default the one of the same side.
    """

    type: Literal["quantiles"]
    source: str | None = Field(default=None, alias="from", min_length=1)
    column: Literal["input", "output"] | None = None
    p: tuple[float, ...] | None = None
    tokens: tuple[int, ...] | None = None
    min: PositiveInt = 1
    max: PositiveInt | None = None

    @model_validator(mode="after")
    def _one_grid(self) -> Self:
        inline = self.p is not None and self.tokens is not None
        if (self.source is None) != inline or (self.p is None) != (self.tokens is None):
            raise ValueError("quantiles needs either from (a workload file) or p and tokens (a grid)")
        if inline and self.column is not None:
            raise ValueError("column chooses a grid of a workload file; an inline grid has none")
        if self.max is not None and self.max < self.min:
            raise ValueError(f"max {self.max} is below min {self.min}")
        self.grid()
        return self

    def grid(self) -> QuantileGrid | None:
        """Inline grid, if there is one."""
        if self.p is None or self.tokens is None:
            return None
        return QuantileGrid(p=self.p, tokens=self.tokens)


def _number_is_constant(value: object) -> object:
    if isinstance(value, int) and not isinstance(value, bool):
        return {"type": "constant", "tokens": value}
    if isinstance(value, dict | Config):
        return value
    raise ValueError(
        f"{value!r} is not a length; write tokens (1024) or {{type: lognormal, p50: 500, p90: 2000}}"
    )


_Typed = Annotated[
    ConstantLength | UniformLength | LognormalLength | QuantileLength, Field(discriminator="type")
]
Length = Annotated[_Typed, BeforeValidator(_number_is_constant, json_schema_input_type=PositiveInt | _Typed)]


class Lengths(Config):
    """``input`` and ``output`` drawn apart, or ``joint``: pairs as a workload file relates them."""

    input: Length | None = None
    output: Length | None = None
    joint: str | None = Field(default=None, min_length=1)

    @model_validator(mode="after")
    def _pair_or_joint(self) -> Self:
        apart = {self.input is not None, self.output is not None}
        if apart != {self.joint is None}:
            raise ValueError("lengths needs both input and output, or joint alone")
        return self
