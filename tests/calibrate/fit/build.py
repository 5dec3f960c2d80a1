"""Cells made up from a known law, as a campaign would hand them over."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from calibrate.cells import Cell, Measured

TOKENS = (1, 2, 4, 8, 16, 17, 24, 32, 33, 48, 64, 65, 96, 128, 129, 192, 256, 257, 384, 512)

Law = Callable[[Mapping[str, float]], float]
"""Microseconds of a shape."""


def cell(sequences: int, width: int, context: int, name: str = "verify", **more: Any) -> Cell:
    data = {"pass": name, "sequences": sequences, "width": width, "context": context, **more}
    return Cell.model_validate(data)


def measured(at: Cell, *samples_us: float, flags: tuple[str, ...] = ()) -> Measured:
    median = float(np.median(samples_us))
    return Measured(
        cell=at,
        samples_us=samples_us,
        median_us=median,
        ci_us=(min(samples_us), max(samples_us)),
        flags=flags,
    )


def grid(base: int = 1024, others: Iterable[int] = (256, 4096, 16384)) -> list[Cell]:
    """Token counts in several splits at the base context, and other contexts on a subset."""
    rows = [cell(t // w, w, base) for t in TOKENS for w in (1, 2, 4, 8) if t % w == 0]
    subset = [cell(b, w, s) for b in (1, 8, 32, 64, 128) for w in (1, 4) for s in others]
    return rows + subset


def bend(tokens: float, memory_us: float, per_token_us: float, power: float) -> float:
    """Memory and compute time as a p-norm: calibration.md, section 2."""
    high, low = max(memory_us, per_token_us * tokens), min(memory_us, per_token_us * tokens)
    return float(high * (1 + (low / high) ** power) ** (1 / power))


def law(shape: Mapping[str, float]) -> float:
    """A made-up device: floor 200 us, 4 ms of weights, 40 us per token, p = 4, and attention."""
    return (
        200
        + bend(shape["tokens"], 4000, 40, 4)
        + 3 * shape["sequences"]
        + 0.04 * shape["context_tokens"]
        + 0.001 * shape["query_context_tokens"]
    )


def campaign(
    cells: Iterable[Cell], truth: Law, noise: float, seed: int = 0, samples: int = 9
) -> list[Measured]:
    """Every cell with log-normal noise of the given size on each of its samples."""
    draws = np.random.default_rng(seed)
    return [
        measured(at, *(truth(at.shape) * np.exp(noise * draws.standard_normal(samples))).tolist())
        for at in cells
    ]
