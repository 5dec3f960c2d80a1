"""Prompt and output lengths by inversion: one draw per request and side, whatever the distribution."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from sim.errors import InputError
from sim.workload.grids import QuantileGrid, load_workload_file
from sim.workload.length_config import (
    ConstantLength,
    Lengths,
    LognormalLength,
    QuantileLength,
    UniformLength,
)

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]
Locate = Callable[[str], Path]
Side = Literal["input", "output"]
AnyLength = ConstantLength | UniformLength | LognormalLength | QuantileLength

LONGEST_TOKENS = 2**40  # keeps a heavy tail inside int64; no model reads a prompt that long


def lengths_at(lengths: Lengths, u_input: Float64, u_output: Float64, locate: Locate) -> tuple[Int64, Int64]:
    """Prompt and output tokens at the given probabilities in (0, 1), each at least 1."""
    if lengths.joint is not None:
        return _joint_at(locate(lengths.joint), u_input, u_output)
    if lengths.input is None or lengths.output is None:
        raise InputError("lengths needs both input and output, or joint alone")
    return _length_at(lengths.input, u_input, "input", locate), _length_at(
        lengths.output, u_output, "output", locate
    )


def _joint_at(path: Path, u_input: Float64, u_output: Float64) -> tuple[Int64, Int64]:
    file = load_workload_file(path)
    if file.input is None or file.joint is None:
        raise InputError(f"{path}: has no joint lengths; joint needs a file with input and joint grids")
    return file.input.at(u_input), file.joint.at(u_input, u_output)


def _length_at(length: AnyLength, u: Float64, side: Side, locate: Locate) -> Int64:
    match length:
        case ConstantLength():
            return np.full(len(u), length.tokens, dtype=np.int64)
        case UniformLength():
            return length.min + np.floor(u * (length.max - length.min + 1)).astype(np.int64)
        case LognormalLength():
            return _held(_lognormal_at(length, u), length.min, length.max)
        case QuantileLength():
            return _held(_grid(length, side, locate).at(u), length.min, length.max)


def _lognormal_at(length: LognormalLength, u: Float64) -> Int64:
    mu, sigma = lognormal_parameters(length)
    return np.rint(np.minimum(np.exp(mu + sigma * ndtri(u)), LONGEST_TOKENS)).astype(np.int64)


def lognormal_parameters(length: LognormalLength) -> tuple[float, float]:
    """Mean and standard deviation of the logarithm of the length."""
    if length.p50 is not None and length.p90 is not None:
        return math.log(length.p50), math.log(length.p90 / length.p50) / float(ndtri(0.9))
    sigma = length.sigma or 0.0
    if length.mean is not None:
        return math.log(length.mean) - sigma * sigma / 2, sigma
    return math.log(length.median or 1.0), sigma


def _grid(length: QuantileLength, side: Side, locate: Locate) -> QuantileGrid:
    inline = length.grid()
    return inline if inline is not None else _file_grid(locate(length.source or ""), length.column or side)


def _file_grid(path: Path, column: Side) -> QuantileGrid:
    file = load_workload_file(path)
    grid = file.input if column == "input" else file.output
    if grid is None:
        raise InputError(f"{path}: has no {column} grid; add {column}: {{p, tokens}} or choose another file")
    return grid


def _held(tokens: Int64, low: int, high: int | None) -> Int64:
    return np.clip(tokens, low, LONGEST_TOKENS if high is None else high)
