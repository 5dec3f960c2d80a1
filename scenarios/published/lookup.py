"""Prompt look-up that finds something only now and then, as n-gram drafters do.

An n-gram drafter proposes nothing where the last tokens have not been seen before, and the
sequence then decodes one token. Published acceptance counts such steps as rejections; their cost
is that of no speculation. This policy drafts ``k`` tokens with the stated probability of a match:
always where a draft will be accepted (there was a match), otherwise at random.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sim.policies.base import Batch, Depths, PolicyDefaults


class Lookup(PolicyDefaults):
    """Drafts ``k`` tokens at a share ``match`` of the positions, of which ``accepted`` accept one.

    ``accepted`` is the unconditional acceptance of the first draft; it cannot exceed ``match``.
    """

    clairvoyant = True

    def __init__(self, k: int, match: float, accepted: float) -> None:
        self.k = k
        self.in_vain = (match - accepted) / (1 - accepted)

    def draft_depths(self, batch: Batch) -> Depths:
        """``k`` where the look-up matches, 0 elsewhere; int64, shape (sequences,)."""
        assert batch.run is not None  # clairvoyant policies are given it
        matches = (batch.run > 0) | (_unit(batch.request, batch.context_tokens) < self.in_vain)
        return np.where(matches, min(self.k, batch.max_depth), 0)


def _unit(request: NDArray[np.int64], position: NDArray[np.int64]) -> NDArray[np.float64]:
    """A number in [0, 1) per (request, position), the same in every run (the splitmix64 finaliser)."""
    z = (request.astype(np.uint64) << np.uint64(32)) + position.astype(np.uint64)
    z = z * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray((z ^ (z >> np.uint64(31))) >> np.uint64(11), dtype=np.float64) * 2.0**-53
