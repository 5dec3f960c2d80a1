"""``off``: no speculation and no drafter loaded; the baseline of every comparison."""

from __future__ import annotations

from typing import Literal

from sim.policies.by_batch import ByBatch
from sim.policies.config import Bounds, PolicyConfig


class Off(ByBatch):
    """Plain decoding."""

    drafts = False

    def depth_at(self, size: int) -> int:
        """Never draft."""
        return 0


class OffConfig(PolicyConfig):
    """No speculation; the drafter takes no memory and no time."""

    policy: Literal["off"] = "off"

    def build(self, bounds: Bounds) -> Off:
        """The policy."""
        return Off()
