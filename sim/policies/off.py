"""``off``: no speculation and no drafter loaded; the baseline of every comparison."""

from __future__ import annotations

from typing import Literal

from sim.policies.base import Batch, Depths, PolicyDefaults
from sim.policies.config import Bounds, PolicyConfig


class Off(PolicyDefaults):
    """Plain decoding."""

    drafts = False

    def draft_depths(self, batch: Batch) -> Depths:
        """Never draft."""
        return 0


class OffConfig(PolicyConfig):
    """No speculation; the drafter takes no memory and no time."""

    policy: Literal["off"] = "off"

    def build(self, bounds: Bounds) -> Off:
        """The policy."""
        return Off()
