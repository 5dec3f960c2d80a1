"""Where a target pass is cheap to fill up to: the edges of its cost over the drafts it verifies.

A pass costs a staircase of its tokens (captured graphs, tiles). It makes no sense to buy a part of a
step, so only totals right before the larger rises are worth considering, some per level of drafts.
Context adds a linear cost, which moves no edge: they are found once for each batch size.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.cost.step_cost import StepCost
from sim.policies.base import Int64

Float = NDArray[np.float64]
_PER_LEVEL = 4
_FAR = 1e6


class Corner(NamedTuple):
    """Draft totals worth considering for one batch size, rising from 0, and their costs in ns.

    Costs are (at no context, per token of context): of the ``slots`` of a round with each total, target
    pass and drafter's first pass, of that ``first`` pass alone, and of one ``further`` pass.
    """

    totals: Int64
    slots: tuple[Float, Float]
    first: tuple[Float, Float]
    further: tuple[float, float]


class Corners:
    """Corners by batch size; ``max_depth`` drafts per sequence at most."""

    def __init__(self, max_depth: int) -> None:
        self.max_depth = max_depth
        self._cost: StepCost | None = None
        self._known: dict[int, Corner] = {}

    def of(self, cost: StepCost, sequences: int) -> Corner:
        """Totals from 0 to ``sequences * max_depth``, whole levels among them."""
        if cost is not self._cost:
            self._cost, self._known = cost, {}
        if sequences not in self._known:
            self._known[sequences] = self._found(cost, sequences)
        return self._known[sequences]

    def _found(self, cost: StepCost, n: int) -> Corner:
        totals = np.union1d(self._edges(cost, n), n * np.arange(self.max_depth + 1)).astype(np.int64)

        near = float(cost.knee(n))

        def at(context: float) -> tuple[Float, Float, float]:
            first = cost.first_ns(totals, n, n, context)
            return (
                cost.target_ns(n + totals, n, context) + first,
                first,
                float(cost.further_ns(n, 2, context)),
            )

        slots, first, further = zip(at(near), at(near + _FAR), strict=True)
        return Corner(totals, _line(near, *slots), _line(near, *first), _line(near, *further))

    def _edges(self, cost: StepCost, n: int) -> Int64:
        """The last of the highest rises in every quarter of a level."""
        most = n * self.max_depth
        totals = np.arange(most + 1)
        ns = cost.target_ns(n + totals, n, 0.0) + cost.first_ns(totals, n, n, 0.0)
        width = -(-n // _PER_LEVEL)
        windows = -(-most // width)
        rises = np.zeros(windows * width)
        rises[:most] = np.diff(ns)
        last = width - 1 - rises.reshape(windows, width)[:, ::-1].argmax(axis=1)
        return np.asarray(np.minimum(np.arange(windows) * width + last, most))


def _line(near: float, at_near: Any, far: Any) -> Any:
    """Value at no context and slope of the line through the values at ``near`` and ``_FAR`` beyond it."""
    slope = (far - at_near) / _FAR
    return (at_near - near * slope if near else at_near), slope
