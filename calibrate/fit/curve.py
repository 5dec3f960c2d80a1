"""From a physical fit to what the simulator looks up: a table over the count, and linear parts.

The *fit* table follows the physical form, moved by a share of the measured deviation: pooled so that it
rises (isotonic regression), interpolated by PCHIP over the log count, and held between the
measured neighbours. The *exact* table is the measured medians themselves, straight in between.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Any, Final

import numpy as np
from scipy.interpolate import PchipInterpolator
from scipy.optimize import isotonic_regression

from calibrate.fit.cells import Floats, Mask, Table, Variables
from calibrate.fit.physical import Physical
from calibrate.profile import Curve, Term, Variable

SPACING: Final = 1.08
"""Ratio of neighbouring table points: the straight line between them misses a bend by under 0.2 %."""

BEYOND: Final = 1.25
"""One point past the data by the physical form, so that its slope goes on, not that of the last edge."""


@dataclass(frozen=True)
class Tabulated:
    """A pass as the profile holds it: ``ns`` at counts ``x``, straight in between, plus ``per`` unit."""

    variables: Variables
    x: Floats
    ns: Floats
    per: Floats

    def predict(self, count: Floats, columns: Floats) -> Floats:
        """Nanoseconds of cells: ``columns`` as in ``Table`` (its constant is inside the curve)."""
        slope = max(0.0, float((self.ns[-1] - self.ns[-2]) / (self.x[-1] - self.x[-2])))
        curve = np.interp(count, self.x, self.ns) + slope * np.maximum(count - self.x[-1], 0.0)
        return np.asarray(curve + columns[:, 1:] @ self.per)

    def terms(self, name: str, source: str) -> tuple[Term, ...]:
        """The pass as terms: the curve, then one term per linear part that costs anything."""
        common: dict[str, Any] = {"mark": "measured", "source": source}
        x, ns = tuple(int(at) for at in self.x), tuple(_digits(value) for value in self.ns)
        curve = Curve(over=self.variables.over, x=x, ns=ns)
        linear = [
            Term(name=f"{name}_{_PART[variable]}", per_ns={variable: _digits(ns)}, **common)
            for variable, ns in zip(self.variables.linear, self.per.tolist(), strict=True)
            if _digits(ns) > 0
        ]
        return (Term(name=name, curve=curve, **common), *linear)


_PART: Final[dict[Variable, str]] = {
    "tokens": "tokens",
    "sequences": "sequences",
    "logits": "logits",
    "context_tokens": "kv",
    "query_context_tokens": "attention",
    "prefill_pairs": "prefill",
    "wide_context_tokens": "unpacked",
}


def _digits(value: float) -> float:
    return float(f"{value:.7g}")


def fitted(table: Table, keep: Mask, physical: Physical, share: float) -> Tabulated:
    """The physical form, moved by ``share`` of what the kept cells deviate from it."""
    knots, ns, cells = _token_part(table, keep, physical)
    x = _points(knots)
    base = physical.over_count(x)
    if share > 0:
        model = physical.over_count(knots)
        moved = model + share * (ns - model)
        risen = np.asarray(isotonic_regression(moved, weights=cells).x, np.float64)
        base = _bounded(x, base + _between(knots, risen - model, x), knots, risen)
    return Tabulated(table.variables, x, np.maximum.accumulate(np.maximum(base, 0.0)), physical.linear[1:])


def exact(table: Table, keep: Mask, physical: Physical) -> Tabulated:
    """The medians of the kept cells at the base context (all cells where none is there)."""
    at_base = keep & _points_of_a_curve(table)
    knots, ns, _ = _token_part(table, at_base if at_base.any() else keep, physical)
    beyond = float(ceil(BEYOND * knots[-1]) + 1)
    growth = np.diff(physical.over_count(np.array([knots[-1], beyond])))[0]
    tail = max(0.0, ns[-1]) + growth
    return Tabulated(
        table.variables, np.append(knots, beyond), np.maximum(np.append(ns, tail), 0.0), physical.linear[1:]
    )


def _points_of_a_curve(table: Table) -> Mask:
    """Decode cells at the base context; prefill chunks only where they are larger than all of those."""
    base = table.base_context
    chunked = np.array([cell.chunk > 0 for cell in table.cells])
    context = np.array([not cell.sequences or cell.context == base for cell in table.cells])
    largest = table.count[~chunked].max(initial=0.0)
    return np.asarray(context & (~chunked | (table.count > largest)))


def _token_part(table: Table, keep: Mask, physical: Physical) -> tuple[Floats, Floats, Floats]:
    """Distinct counts, what the cells of each leave beside the linear parts (median), and how many."""
    left = table.ns[keep] - physical.beside(table.columns[keep])
    counts = table.count[keep]
    left, counts = left[order := np.lexsort((left, counts))], counts[order]
    knots, first, times = np.unique(counts, return_index=True, return_counts=True)
    ns = (left[first + (times - 1) // 2] + left[first + times // 2]) / 2
    return knots, ns, times.astype(float)


def _points(knots: Floats) -> Floats:
    """Whole counts from the first knot to past the last, dense enough for straight lines."""
    first, last = float(knots[0]), float(ceil(BEYOND * knots[-1]) + 1)
    steps = 2 + ceil(np.log(last / first) / np.log(SPACING))
    between = np.round(np.geomspace(first, last, steps))
    inside = between[between < knots[-1]]
    return np.unique(np.concatenate([inside, knots, [last]]))


def _between(knots: Floats, values: Floats, at: Floats) -> Floats:
    """PCHIP over the log count, flat outside the knots."""
    if len(knots) == 1:
        return np.full(len(at), values[0])
    inside = np.clip(at, knots[0], knots[-1])
    return np.asarray(PchipInterpolator(np.log(knots), values)(np.log(inside)), np.float64)


def _bounded(at: Floats, ns: Floats, knots: Floats, measured: Floats) -> Floats:
    """``ns`` held between the measured values of the neighbouring knots; above the last one, free to rise."""
    below = np.maximum(np.searchsorted(knots, at, side="right") - 1, 0)
    above = np.minimum(np.searchsorted(knots, at), len(knots) - 1)
    ceiling = np.where(at > knots[-1], np.inf, measured[above])
    return np.clip(ns, measured[below], ceiling)
