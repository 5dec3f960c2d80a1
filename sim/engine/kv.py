"""Paged KV memory: a count of blocks, who holds how many is the batch's business."""

from __future__ import annotations

from calibrate.profile import Drafter, ModelWork, Profile
from sim.errors import InputError, SimulationError


class BlockPool:
    """Free blocks out of a fixed capacity; allocated = freed + held, never over capacity.

    ``shared`` counts the holders of blocks beyond each block's first (prefix caching alone).
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = self.free = capacity
        self.shared = 0

    @property
    def held(self) -> int:
        """Blocks handed out."""
        return self.capacity - self.free

    @property
    def claims(self) -> int:
        """Blocks as their holders count them: a block held twice counts twice."""
        return self.capacity - self.free + self.shared

    def take(self, blocks: int) -> None:
        """Hand out ``blocks``; the caller has checked that they are free."""
        self.free -= blocks

    def give(self, blocks: int) -> None:
        """Take ``blocks`` back."""
        self.free += blocks

    def release(self, request: int, held: int) -> None:
        """Take back all ``held`` blocks of a request."""
        self.give(held)

    def check_integrity(self, claims: int) -> None:
        """Raise ``SimulationError`` unless free blocks and those claimed make up the capacity."""
        held = claims - self.shared
        if self.free < 0 or held < 0 or self.free + held != self.capacity:
            raise SimulationError(f"{self.free} free + {held} held blocks != capacity {self.capacity}")


def block_bytes(profile: Profile, drafter: Drafter | None, block_size: int) -> float:
    """KV bytes of ``block_size`` tokens in the target and the drafter, windowed layers apart."""
    models = _models(profile, drafter)
    return block_size * sum(work.kv_bytes_per_token - work.window_kv_bytes_per_token for work in models)


def blocks_in_memory(profile: Profile, drafter: Drafter | None, block_size: int, utilization: float) -> int:
    """KV blocks that the device's memory holds beside the weights.

    ``utilization`` of the memory, less target and drafter weights, divided by the bytes of a
    block in both models. Raises ``InputError`` when the weights do not fit.
    """
    weights = sum(work.weight_bytes for work in _models(profile, drafter))
    memory = utilization * profile.device.memory_bytes * profile.device.count
    if weights >= memory:
        raise InputError(
            f"{profile.name}: weights take {weights / 1e9:.1f} GB of {memory / 1e9:.1f} GB usable; "
            "raise gpu_memory_utilization or use more devices"
        )
    return blocks_in(memory - weights, profile, drafter, block_size)


def blocks_in(memory_bytes: float, profile: Profile, drafter: Drafter | None, block_size: int) -> int:
    """KV blocks, of target and drafter together, that ``memory_bytes`` hold."""
    per_block = block_bytes(profile, drafter, block_size)
    return int(memory_bytes / per_block) if per_block else 1 << 40


def state_blocks(profile: Profile, drafter: Drafter | None, block_size: int) -> int:
    """Blocks' worth of memory that a sequence takes at any length.

    Its recurrent state (hybrid models) and the full window of windowed layers, which give back what
    falls out of it.
    """
    state = sum(
        work.state_bytes_per_sequence + work.window_tokens * work.window_kv_bytes_per_token
        for work in _models(profile, drafter)
    )
    per_block = block_bytes(profile, drafter, block_size)
    return -int(-state // per_block) if per_block else 0


def checkpoint_blocks(profile: Profile, drafter: Drafter | None, block_size: int, depth: int) -> int:
    """Blocks' worth of memory of one recurrent state of the target for each of ``depth`` drafts."""
    per_block = block_bytes(profile, drafter, block_size)
    states = depth * profile.target.work.state_bytes_per_sequence
    return -int(-states // per_block) if per_block else 0


def _models(profile: Profile, drafter: Drafter | None) -> list[ModelWork]:
    return [profile.target.work] + ([drafter.work] if drafter and drafter.work else [])
