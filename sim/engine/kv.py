"""Paged KV memory: a count of blocks, who holds how many is the batch's business."""

from __future__ import annotations

from calibrate.profile import Drafter, Profile
from sim.errors import InputError, SimulationError


class BlockPool:
    """Free blocks out of a fixed capacity; allocated = freed + held, never over capacity."""

    def __init__(self, capacity: int) -> None:
        self.capacity = self.free = capacity

    @property
    def held(self) -> int:
        """Blocks handed out."""
        return self.capacity - self.free

    def take(self, blocks: int) -> None:
        """Hand out ``blocks``; the caller has checked that they are free."""
        self.free -= blocks

    def give(self, blocks: int) -> None:
        """Take ``blocks`` back."""
        self.free += blocks

    def check_integrity(self, held: int) -> None:
        """Raise ``SimulationError`` unless free and held blocks make up the capacity."""
        if self.free < 0 or held < 0 or self.free + held != self.capacity:
            raise SimulationError(f"{self.free} free + {held} held blocks != capacity {self.capacity}")


def blocks_in_memory(profile: Profile, drafter: Drafter | None, block_size: int, utilization: float) -> int:
    """KV blocks that the device's memory holds beside the weights.

    ``utilization`` of the memory, less target and drafter weights, divided by the KV bytes of
    ``block_size`` tokens in both models. Raises ``InputError`` when the weights do not fit.
    """
    work = [profile.target.work] + ([drafter.work] if drafter and drafter.work else [])
    memory = utilization * profile.device.memory_bytes * profile.device.count
    left = memory - sum(w.weight_bytes for w in work)
    per_block = block_size * sum(w.kv_bytes_per_token for w in work)
    if left <= 0:
        raise InputError(
            f"{profile.name}: weights take {sum(w.weight_bytes for w in work) / 1e9:.1f} GB of "
            f"{memory / 1e9:.1f} GB usable; raise gpu_memory_utilization or use more devices"
        )
    return int(left / per_block) if per_block else 1 << 40


def state_blocks(profile: Profile, block_size: int) -> int:
    """Blocks' worth of memory that one sequence's recurrent state takes (hybrid models)."""
    work = profile.target.work
    per_block = block_size * work.kv_bytes_per_token
    return -int(-work.state_bytes_per_sequence // per_block) if per_block else 0
