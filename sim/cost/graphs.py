"""How a target pass is launched: in one captured graph, in captured pieces, or eagerly; and its padding.

Modes are vLLM's (``CUDAGraphMode``, vllm/config/compilation.py, 0.32). A step record's ``graph`` column
holds which one ran.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

Int64 = NDArray[np.int64]
GraphMode = Literal["none", "piecewise", "full", "full_decode_only", "full_and_piecewise"]
EAGER: Final = 0
FULL: Final = 1
PIECEWISE: Final = 2
MIXED: Final = -1
"""Depth of a step that is no uniform decode batch."""


@dataclass(frozen=True)
class GraphHabits:
    """What is captured: mode, sizes in tokens, and the depths whose decode batches have graphs of their own.

    ``multiples`` rounds sizes up to whole sequences of depth + 1 tokens, as an engine does whose decode
    graphs are captured by sequences; at one captured depth all sizes are rounded, at several only those
    of the decode graphs.
    """

    mode: GraphMode = "full"
    sizes: tuple[int, ...] = ()
    depths: tuple[int, ...] = ()
    multiples: bool = False

    def by_depth(self, depth: int) -> tuple[int, ...]:
        """Sizes of the decode graphs of one depth."""
        return _multiples_of(self.sizes, depth + 1) if self.multiples else self.sizes

    @property
    def shared(self) -> tuple[int, ...]:
        """Sizes for steps that are no uniform decode batch."""
        return self.by_depth(self.depths[0]) if len(self.depths) == 1 else self.sizes


class Graphs:
    """Launch and padded size of every step; ``size`` is one more than the largest step asked about.

    Without sizes every step has a graph of its exact size.
    """

    def __init__(self, habits: GraphHabits, size: int) -> None:
        self.mode, self.size = habits.mode, size
        shared = () if habits.mode == "none" else habits.shared
        self.largest = max(shared, default=0)
        self.padded_array = padding(shared, size)
        self.padded: list[int] = self.padded_array.tolist()
        self.depths = frozenset(habits.depths)
        self.plain = habits.mode == "full" and not habits.multiples
        """Whether the launch depends on the number of tokens alone."""
        tiers = {depth: habits.by_depth(depth) for depth in habits.depths} if habits.multiples else {}
        self.widest = max([self.largest, *(max(sizes, default=0) for sizes in tiers.values())])
        """Tokens of the largest graph of all."""
        self._tiers = {depth: (padding(sizes, size), max(sizes, default=0)) for depth, sizes in tiers.items()}

    def of(self, tokens: int, depth: int) -> tuple[int, int]:
        """Launch and padded tokens of a step; ``depth`` is that of a uniform decode batch, or ``MIXED``."""
        if self.mode == "none":
            return EAGER, tokens
        if depth in self.depths and self.mode != "piecewise":
            padded, largest = self._tiers.get(depth, (self.padded_array, self.largest))
            if not tokens > largest > 0:
                return FULL, int(padded[tokens])
        if tokens > self.largest > 0 or self.mode == "full_decode_only":
            return EAGER, tokens
        return (FULL if self.mode == "full" else PIECEWISE), self.padded[tokens]

    def of_decodes(self, tokens: ArrayLike, sequences: ArrayLike) -> tuple[Int64, Int64]:
        """The same for decode-only steps whose tokens are spread evenly over their sequences."""
        t, n = np.broadcast_arrays(np.asarray(tokens), np.asarray(sequences))
        whole = (n > 0) & (t % np.maximum(n, 1) == 0)
        depths = np.where(whole, t // np.maximum(n, 1) - 1, MIXED)
        found = [self.of(*each) for each in zip(t.ravel().tolist(), depths.ravel().tolist(), strict=True)]
        pairs = np.array(found, dtype=np.int64).reshape((*t.shape, 2))
        return pairs[..., 0], pairs[..., 1]


def padding(capture_sizes: Sequence[int], size: int) -> Int64:
    """Padded size of every token count; counts beyond the largest capture keep their own."""
    at = np.arange(size)
    sizes = np.asarray(sorted(capture_sizes), dtype=np.int64)
    if not len(sizes):
        return at
    slot = np.searchsorted(sizes, at)
    padded = sizes[np.minimum(slot, len(sizes) - 1)]
    return np.where((at > sizes[-1]) | (at == 0), at, padded)


def _multiples_of(sizes: Sequence[int], width: int) -> tuple[int, ...]:
    """Sizes rounded up to multiples of ``width``, none beyond the largest; at least one multiple."""
    rounded = {-(-size // width) * width for size in sizes}
    most = max(sizes, default=0)
    return tuple(sorted(size for size in rounded if size <= most)) or ((width,) if sizes else ())
