"""Linear layers from the measured GEMM tables: ``(m, n, k) -> latency``."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from calibrate.compose.tables import AIC, AIC_LICENCE, Floats, Folders, Ledger, rows
from calibrate.shapes import Linear

LARGEST_M = 8192
"""Step tokens beyond which the tables are too sparse (8192, 16384, 32768) to be worth keeping."""


@dataclass(frozen=True)
class Corner:
    """A measured shape and its weight in the time of a wanted shape."""

    n: int
    k: int
    weight: float


@dataclass(frozen=True)
class GemmTable:
    """Latency in ns over ``m`` for every measured ``(n, k)``; NaN where a row is missing."""

    key: str
    m: tuple[int, ...]
    n: tuple[int, ...]
    k: tuple[int, ...]
    cube: Floats

    def latency(self, linear: Linear) -> Floats:
        """Nanoseconds of one product at each ``m``.

        A shape outside the grid is the bilinear mean of its measured neighbours (time is close
        to affine in ``n`` and in ``k`` at fixed ``m``); beyond the largest one, the largest scaled by
        weight bytes (the same utilisation).
        """
        total = np.zeros(len(self.m))
        for corner in self.corners(linear):
            total += corner.weight * self._measured(corner)
        return total

    def corners(self, linear: Linear) -> tuple[Corner, ...]:
        """The measured shapes that stand for ``linear``; one with weight 1 when it is measured."""
        return tuple(
            Corner(n, k, wn * wk)
            for n, wn in _bracket(self.n, linear.n)
            for k, wk in _bracket(self.k, linear.k)
        )

    def _measured(self, corner: Corner) -> Floats:
        column = self.cube[:, self.n.index(corner.n), self.k.index(corner.k)]
        known = np.isfinite(column)
        filled: Floats = np.interp(self.m, np.asarray(self.m)[known], column[known])
        return filled

    def keep(self, linear: Linear, ledger: Ledger) -> None:
        """Copy the raw rows behind ``linear`` into the ledger."""
        for corner in self.corners(linear):
            column = self.cube[:, self.n.index(corner.n), self.k.index(corner.k)]
            for m, ns in zip(self.m, column.tolist(), strict=True):
                if np.isfinite(ns):
                    ledger.keep("gemm", self.key, ns / 1e6, m=m, n=corner.n, k=corner.k)

    def describe(self, linear: Linear) -> str:
        """How the time of ``linear`` was come by, for a term's source line."""
        corners = self.corners(linear)
        if len(corners) == 1 and corners[0].weight == 1.0:
            return f"{linear.name} {linear.n}x{linear.k} measured"
        parts = " + ".join(f"{c.weight:.3f} of {c.n}x{c.k}" for c in corners)
        return f"{linear.name} {linear.n}x{linear.k} from {parts}"


def _bracket(axis: tuple[int, ...], value: int) -> list[tuple[int, float]]:
    """Neighbours of ``value`` on ``axis`` with linear weights; the last one scaled beyond the end."""
    if value >= axis[-1] or value <= axis[0]:
        edge = axis[-1] if value >= axis[-1] else axis[0]
        return [(edge, value / edge)]
    above = int(np.searchsorted(axis, value))
    if axis[above] == value:
        return [(value, 1.0)]
    low, high = axis[above - 1], axis[above]
    share = (value - low) / (high - low)
    return [(low, 1.0 - share), (high, share)]


@cache
def _load(folders: Folders, gpu: str, dtype: str) -> GemmTable:
    table = rows(
        folders.perf(gpu, "gemm"),
        "m, n, k, min(latency) AS ms",
        f"gemm_dtype = '{dtype}' AND m <= {LARGEST_M} GROUP BY m, n, k",
        "m, n, k",
    )
    axes = [np.unique(table[name]) for name in ("m", "n", "k")]
    cube = np.full([len(axis) for axis in axes], np.nan)
    place = tuple(
        np.searchsorted(axis, table[name]) for axis, name in zip(axes, ("m", "n", "k"), strict=True)
    )
    cube[place] = table["ms"] * 1e6
    m, n, k = (tuple(int(value) for value in axis) for axis in axes)
    key = f"aic-gemm-{gpu}" if dtype == "bfloat16" else f"aic-gemm-{gpu}-{dtype}"
    return GemmTable(key, m, n, k, cube)


def gemm_table(folders: Folders, gpu: str, ledger: Ledger, dtype: str = "bfloat16") -> GemmTable:
    """The GEMM table of ``gpu`` in ``dtype`` (the fastest kernel of a shape if a table has several)."""
    table = _load(folders, gpu, dtype)
    path = folders.perf(gpu, "gemm")
    name = "bf16" if dtype == "bfloat16" else dtype
    ledger.source(table.key, path, f"{AIC}: GEMM {name}, vLLM's kernel, {gpu}", AIC_LICENCE)
    return table
