"""Host memory for preempted sequences: how much is left of it, and what moving KV there and back takes.

vLLM up to 0.9 kept preempted KV so (V0 engine, vllm/core/scheduler.py, ``PreemptionMode.SWAP``; 4 GiB
by default, ``--swap-space``): copies stood before the step's forward pass, and a sequence for which no
room was left was recomputed.
"""

from __future__ import annotations

from sim.errors import SimulationError
from sim.units import NS_PER_S


class HostMemory:
    """A count of host blocks; ``block_bytes`` is what moving one takes, in target and drafter together.

    Blocks moved in either direction since the step began are transferred one after the other, at
    ``bandwidth`` bytes per second.
    """

    def __init__(self, space_bytes: int, block_bytes: float, bandwidth: float) -> None:
        self.capacity = self.free = int(space_bytes / block_bytes)
        self.block_bytes, self.bandwidth = block_bytes, bandwidth
        self.moved = 0

    def take(self, blocks: int) -> bool:
        """Move ``blocks`` to the host; whether they fit."""
        if blocks > self.free:
            return False
        self.free -= blocks
        self.moved += blocks
        return True

    def bring_back(self, blocks: int) -> None:
        """Move ``blocks`` to the device."""
        self.drop(blocks)
        self.moved += blocks

    def drop(self, blocks: int) -> None:
        """Forget ``blocks`` whose request has gone."""
        self.free += blocks

    def transfer_ns(self) -> int:
        """Time of what was moved since this was last asked."""
        moved, self.moved = self.moved, 0
        return round(moved * self.block_bytes / self.bandwidth * NS_PER_S)

    def check_integrity(self, held: int) -> None:
        """Raise ``SimulationError`` unless free blocks and those held make up the capacity."""
        if self.free < 0 or self.free + held != self.capacity:
            raise SimulationError(f"host: {self.free} free + {held} held != capacity {self.capacity}")
