"""Counter-based random streams named (seed, purpose, index).

A stream depends on its name alone, so a request's draws are the same whatever the policy, the
order of events or the number of workers. Values come from the raw Philox bit generator, whose
output NumPy promises to keep (NEP 19), turned into doubles here: the same on any NumPy.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

_TO_UNIT = 2.0**-53


def stream_key(seed: int, purpose: str, index: int = 0) -> NDArray[np.uint64]:
    """128-bit Philox key of the stream named (seed, purpose, index)."""
    digest = hashlib.blake2b(f"{seed}/{purpose}/{index}".encode(), digest_size=16).digest()
    return np.frombuffer(digest, dtype="<u8").astype(np.uint64)


def uniforms(seed: int, purpose: str, index: int, count: int) -> NDArray[np.float64]:
    """First ``count`` values in the open interval (0, 1) of the stream (seed, purpose, index)."""
    raw = np.random.Philox(key=stream_key(seed, purpose, index)).random_raw(count)
    return ((raw >> np.uint64(11)).astype(np.float64) + 0.5) * _TO_UNIT
