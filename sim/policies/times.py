"""Round times that policies compare, kept as straight lines over KV tokens by batch size.

Every term of a pass is linear in context (``sim.cost.passes``), so two look-ups per batch size give the
time at any context exactly; where windows or hidden host time bend the lines, each time is looked up.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from sim.cost.step_cost import StepCost
from sim.policies.base import Batch

Float = NDArray[np.float64]
_FAR = 1e6


class RoundTimes:
    """Times in ns of decode-only rounds of a batch, up to ``max_depth`` drafts per sequence."""

    def __init__(self, max_depth: int) -> None:
        self.max_depth = max_depth
        self.depths = np.arange(max_depth + 1)
        self._cost: StepCost | None = None
        self._uniform: dict[int, tuple[Float, Float]] = {}
        self._target: dict[int, tuple[Float, Float]] = {}

    def uniform(self, batch: Batch) -> Float:
        """Drafting and target pass with all sequences at one depth, shape (max_depth + 1,)."""
        cost, n = self._of(batch), batch.sequences
        return self._at(batch, self._uniform, lambda context: cost.round_ns(n, self.depths, context))

    def target(self, batch: Batch) -> Float:
        """Target pass, sampling and host with m drafts in all, shape (sequences * max_depth + 1,)."""
        cost, n = self._of(batch), batch.sequences
        tokens = n + np.arange(n * self.max_depth + 1)
        return self._at(batch, self._target, lambda context: cost.target_ns(tokens, n, context))

    def _of(self, batch: Batch) -> StepCost:
        """The batch's cost; lines of another one are forgotten."""
        if batch.cost is not self._cost:
            self._cost, self._uniform, self._target = batch.cost, {}, {}
        return batch.cost

    def _at(
        self, batch: Batch, lines: dict[int, tuple[Float, Float]], times: Callable[[float], Float]
    ) -> Float:
        n = batch.sequences
        if batch.cost.bends:
            return times(float(batch.context_tokens.sum()))
        if n not in lines:
            none = times(0.0)
            lines[n] = none, (times(_FAR) - none) / _FAR
        none, slope = lines[n]
        return none + slope * int(batch.context_tokens.sum())
