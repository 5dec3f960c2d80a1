"""Where sequential drafting stops: the first draft that some rule calls the last, for every sequence."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sim.policies.base import Depths, Int64


def before_first(stops: NDArray[np.bool_]) -> Int64:
    """Drafts before the first for which ``stops`` is true, shape (sequences,); all where it never is."""
    sequences, width = stops.shape
    ended = np.ones((sequences, width + 1), dtype=np.bool_)
    ended[:, :width] = stops
    first: Int64 = ended.argmax(axis=1)
    return first


def through_first(stops: NDArray[np.bool_], depths: Depths) -> Int64:
    """Drafts proposed when the first for which ``stops`` is true is the last; at most ``depths``.

    Sequential as long as ``stops[:, j]`` is made from drafts up to ``j`` alone: draft ``j`` is then
    proposed or not by those before it.
    """
    return np.minimum(before_first(stops) + 1, depths)
