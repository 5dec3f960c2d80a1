"""Derived workload files: quantile grids of lengths and a rate per time bin, as JSON.

A file has ``schema`` ``leadline.workload/1`` and a ``name``; ``input``, ``output``, ``joint``
and ``rate`` are each optional, so a file may describe a rate alone.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveFloat, ValidationError, model_validator

from sim.errors import InputError
from sim.units import Config

SCHEMA = "leadline.workload/1"
Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]


class QuantileGrid(Config):
    """Lengths in tokens at rising probabilities from 0 to 1; straight lines between them."""

    p: tuple[float, ...] = Field(min_length=2)
    tokens: tuple[int, ...] = Field(min_length=2)

    @model_validator(mode="after")
    def _a_distribution(self) -> Self:
        if len(self.p) != len(self.tokens):
            raise ValueError(
                f"p has {len(self.p)} points and tokens {len(self.tokens)}; give one length per p"
            )
        if self.p[0] != 0 or self.p[-1] != 1:
            raise ValueError(f"p goes from {self.p[0]} to {self.p[-1]}; begin with 0 and end with 1")
        if any(after <= before for before, after in zip(self.p, self.p[1:], strict=False)):
            raise ValueError("p must rise from point to point")
        if any(after < before for before, after in zip(self.tokens, self.tokens[1:], strict=False)):
            raise ValueError("tokens must not fall from point to point")
        if self.tokens[0] < 1:
            raise ValueError(f"tokens start at {self.tokens[0]}; a length is at least 1")
        return self

    def at(self, u: Float64) -> Int64:
        """Lengths at probabilities ``u``, rounded to whole tokens."""
        return np.rint(np.interp(u, self.p, self.tokens)).astype(np.int64)


class JointGrid(Config):
    """Output length given the input: one grid per equally likely cell of the input's rank.

    Inside a cell output does not depend on input, so a correlation comes out a little weaker
    than in the source.
    """

    output_by_input_rank: tuple[QuantileGrid, ...] = Field(min_length=1)

    def at(self, u_input: Float64, u_output: Float64) -> Int64:
        """Output lengths for inputs at probabilities ``u_input``."""
        cells = len(self.output_by_input_rank)
        cell = np.minimum((u_input * cells).astype(np.int64), cells - 1)
        tokens = np.empty(len(u_input), dtype=np.int64)
        for i, grid in enumerate(self.output_by_input_rank):
            here = cell == i
            tokens[here] = grid.at(u_output[here])
        return tokens


class RateProfile(Config):
    """Requests per second in consecutive bins of ``bin_s`` seconds."""

    bin_s: PositiveFloat
    per_s: tuple[float, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _a_rate(self) -> Self:
        if min(self.per_s) < 0 or max(self.per_s) == 0:
            raise ValueError("rates must not be negative and one must be above 0")
        return self


class WorkloadFile(Config):
    """One derived workload, with where it comes from and how to derive it again."""

    schema_: Literal["leadline.workload/1"] = Field(alias="schema")
    name: str
    title: str = ""
    source: str = ""
    source_sha256: str = ""
    licence: str = ""
    citation: str = ""
    command: str = ""
    statistics: dict[str, float] = Field(default_factory=dict)
    input: QuantileGrid | None = None
    output: QuantileGrid | None = None
    joint: JointGrid | None = None
    rate: RateProfile | None = None


def load_workload_file(path: Path) -> WorkloadFile:
    """Read and check a derived workload; ``InputError`` names the file, the field and the fix."""
    try:
        data: Any = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InputError(f"{path}: is not JSON ({error})") from None
    try:
        return WorkloadFile.model_validate(data)
    except ValidationError as error:
        raise InputError("\n".join(_readable(path, problem) for problem in error.errors())) from None


def _readable(path: Path, problem: Any) -> str:
    field = ".".join(str(part) for part in problem["loc"]) or "file"
    return f"{path}: {field}: {problem['msg'].removeprefix('Value error, ')}"
