"""A policy of your own, in a few lines: a batch-size threshold with hysteresis.

Depth ``k`` until ``high`` requests run, then none until only ``low`` do. A single threshold flips
back and forth when the load stays near it; two thresholds with a gap between them do not.
"""

from __future__ import annotations

from sim.policies.base import Batch, Depths, PolicyDefaults


class Threshold(PolicyDefaults):
    """Drafts while few requests run; ``params`` of the scenario are the arguments here."""

    def __init__(self, k: int, low: int, high: int) -> None:
        self.k, self.low, self.high = k, low, high
        self.drafting = True

    def draft_depths(self, batch: Batch) -> Depths:
        """One depth for the whole batch."""
        if batch.running >= self.high:
            self.drafting = False
        elif batch.running <= self.low:
            self.drafting = True
        return min(self.k, batch.max_depth) if self.drafting else 0
