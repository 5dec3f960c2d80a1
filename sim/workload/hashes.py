"""Prompts told apart by hashed blocks, as traces record them: equal hashes, equal tokens so far.

Mooncake's traces (arXiv 2407.00079) hold one hash for every started block of 512 tokens of a prompt,
Qwen-Bailian's for every 16. The last block of a prompt may be partly filled; prompts with an equal hash
there have the same tokens in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from sim.errors import InputError

Int64 = NDArray[np.int64]
MOONCAKE_BLOCK: Final = 512
_SIZES: Final = (MOONCAKE_BLOCK, *(1 << power for power in range(21) if 1 << power != MOONCAKE_BLOCK))


@dataclass(frozen=True)
class PromptHashes:
    """Hashed blocks of every prompt, ``block`` tokens each.

    ``chains[starts[i]:starts[i + 1]]`` are those of request ``i``: numbers from 0, equal for two prompts
    exactly where they are the same up to the end of that block.
    """

    block: int
    chains: Int64
    starts: Int64

    @classmethod
    def of(cls, ids: Sequence[Sequence[int]], block: int) -> Self:
        """Number hashes by all that stands before them, in the order in which they first occur."""
        known: dict[tuple[int, int], int] = {}
        chains: list[int] = []
        for hashes in ids:
            chain = -1
            for each in hashes:
                chain = known.setdefault((chain, each), len(known))
                chains.append(chain)
        starts = np.cumsum([0, *(len(hashes) for hashes in ids)], dtype=np.int64)
        return cls(block, np.array(chains, dtype=np.int64), starts)

    def prompt(self, request: int) -> tuple[int, ...]:
        """The chain numbers of one prompt."""
        return tuple(self.chains[self.starts[request] : self.starts[request + 1]].tolist())

    def picked(self, order: Int64) -> Self:
        """The prompts numbered ``order``, in that order."""
        return type(self).of([self.prompt(int(request)) for request in order], self.block)

    def __len__(self) -> int:
        return len(self.starts) - 1


def hashed(ids: Sequence[Sequence[int]], prompt_tokens: Int64, block: int | None, where: str) -> PromptHashes:
    """Hashes of a trace's prompts; ``block`` is tokens per hash, found from the lengths if not stated.

    512 is taken if it fits, else the power of two that does. A prompt without hashes shares nothing.
    Raises ``InputError``, which begins with ``where``, if prompts have more or fewer started blocks than
    hashes.
    """
    counts = np.array([len(hashes) for hashes in ids], dtype=np.int64)
    for size in _SIZES if block is None else (block,):
        wrong = (counts > 0) & (counts != -(-prompt_tokens // size))
        if not wrong.any():
            return PromptHashes.of(ids, size)
    size = block or MOONCAKE_BLOCK
    row = int(np.flatnonzero((counts > 0) & (counts != -(-prompt_tokens // size)))[0])
    raise InputError(
        f"{where}: a prompt of {prompt_tokens[row]} tokens has {counts[row]} hash_ids; in blocks of {size} "
        f"it has {-(-prompt_tokens[row] // size)}; set hash_block to the tokens of a hashed block"
    )
