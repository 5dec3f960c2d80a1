"""Measured cells as arrays: one row per distinct cell, one column per variable of its pass.

Which variables a pass may depend on is what the simulator knows when it prices that pass
(``sim/cost/step_cost.py``): a drafter's pass knows its tokens, sequences and context, nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from calibrate.cells import Cell, Measured
from calibrate.profile import Counted, Variable

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

UNUSABLE: Final = frozenset({"oom", "throttled"})
FASTEST_US: Final = 1e-3
SLOWEST_US: Final = 1e12
"""A pass of less than a nanosecond or more than eleven days is a broken clock, not a pass."""

FORWARD: Final = ("verify", "prefill", "mixed")
"""Passes that are one and the same forward pass of the target."""


class FitError(ValueError):
    """Cells that cannot be fitted: which, and what would be right."""


@dataclass(frozen=True)
class Variables:
    """What a pass depends on: a curve over ``over``, then linear parts in order of plausibility."""

    over: Counted
    linear: tuple[Variable, ...]


_FORWARD = Variables(
    "tokens", ("sequences", "context_tokens", "query_context_tokens", "prefill_pairs", "logits")
)
_DRAFT = Variables("tokens", ("sequences", "context_tokens", "prefill_pairs"))


def variables_of(name: str) -> Variables:
    """The variables of the pass called ``name``."""
    if name.startswith("draft"):
        return _DRAFT
    if name == "accept":
        return Variables("logits", ("sequences",))
    if name == "host":
        return Variables("sequences", ("logits",))
    return _FORWARD


def shape_of(cell: Cell) -> dict[str, float]:
    """The variables of a cell as the simulator counts them.

    A parallel drafter's pass takes the fresh tokens of every row and a block of as many behind them.
    """
    block = cell.tokens if cell.pass_ == "draft_block" else 0
    return {**cell.shape, "tokens": cell.tokens + block}


@dataclass(frozen=True)
class Table:
    """Distinct cells of one pass: ``count`` and ``ns`` per cell, ``columns[cell, variable]``."""

    variables: Variables
    cells: tuple[Cell, ...]
    samples: tuple[tuple[float, ...], ...]
    count: Floats
    columns: Floats
    ns: Floats
    excluded: int = 0

    def __len__(self) -> int:
        return len(self.cells)

    @property
    def base_context(self) -> int:
        """The context that most decoding cells were measured at (the smallest of those)."""
        contexts = [cell.context for cell in self.cells if cell.sequences] or [0]
        values, times = np.unique(contexts, return_counts=True)
        return int(values[times.argmax()])


def table_of(measured: Sequence[Measured]) -> Table:
    """Pool repeated cells; raises ``FitError`` where nothing usable is left or a time is absurd."""
    usable = [one for one in measured if not UNUSABLE & set(one.flags)]
    if not usable:
        raise FitError(f"none of {len(measured)} cells can be used; measure at least one (verify: eight)")
    pooled: dict[Cell, list[float]] = {}
    for one in usable:
        pooled.setdefault(one.cell, []).extend(_checked(one))
    cells = tuple(pooled)
    variables = variables_of(cells[0].pass_)
    shapes = [shape_of(cell) for cell in cells]
    return Table(
        variables=variables,
        cells=cells,
        samples=tuple(tuple(samples) for samples in pooled.values()),
        count=np.array([max(1.0, shape[variables.over]) for shape in shapes]),
        columns=np.array([[1.0, *(shape[name] for name in variables.linear)] for shape in shapes]),
        ns=_medians(cells[0].pass_, list(pooled.values())),
        excluded=len(measured) - len(usable),
    )


def _medians(name: str, pooled: Sequence[Sequence[float]]) -> Floats:
    """Medians in ns. Host time is a difference of two clocks: a tenth of its usual value is noise."""
    ns = np.array([1e3 * float(np.median(samples)) for samples in pooled])
    return np.maximum(ns, 0.1 * np.median(ns)) if name == "host" else ns


def _checked(one: Measured) -> Iterable[float]:
    for us in one.samples_us:
        if not FASTEST_US <= us <= SLOWEST_US:
            bounds = f"it must lie between {FASTEST_US} and {SLOWEST_US} us"
            raise FitError(f"{describe(one.cell)}: a sample of {us} us; {bounds}")
    return one.samples_us


def describe(cell: Cell) -> str:
    """A cell in words, for messages."""
    chunk = f" + {cell.chunk} prefill tokens after {cell.prefix}" if cell.chunk else ""
    return f"{cell.pass_} {cell.sequences} x {cell.width} at context {cell.context}{chunk}"
