"""Policies that a count of sequences decides alone: one depth for the whole batch, the same always."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal

from sim.policies.base import Batch, PolicyDefaults

BatchKey = Literal["scheduled", "sampling", "running"]


def counted(batch: Batch, key: BatchKey) -> int:
    """The batch size that a table is read at.

    ``scheduled`` counts all requests of the step, prefill chunks included; ``sampling`` the sequences that
    will carry drafts; ``running`` those admitted.
    """
    if key == "scheduled":
        return batch.scheduled
    return batch.sequences if key == "sampling" else batch.running


class ByBatch(PolicyDefaults, ABC):
    """Depth by batch size; ``batch_key`` says which size.

    Such a policy need not be asked step by step: an engine may look its depths up (sim/ahead).
    """

    batch_key: BatchKey = "scheduled"

    @abstractmethod
    def depth_at(self, size: int) -> int:
        """Depth of all sequences at a batch of ``size``, 0 or more."""

    def draft_depths(self, batch: Batch) -> int:
        """One look-up for the whole batch."""
        return self.depth_at(counted(batch, self.batch_key))
