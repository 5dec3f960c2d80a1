"""Counter-based random streams named (seed, purpose, index).

A stream depends on its name alone, so a request's draws are the same whatever the policy, the
order of events or the number of workers. Values come from the raw Philox bit generator, whose
output NumPy promises to keep (NEP 19), turned into doubles here: the same on any NumPy.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.random.bit_generator import ISeedSequence
from numpy.typing import DTypeLike, NDArray

_TO_UNIT = 2.0**-53


def stream_key(seed: int, purpose: str, index: int = 0) -> NDArray[np.uint64]:
    """128-bit Philox key of the stream named (seed, purpose, index)."""
    return _words(_digest(f"{seed}/{purpose}/{index}"))


def uniforms(seed: int, purpose: str, index: int, count: int) -> NDArray[np.float64]:
    """First ``count`` values in the open interval (0, 1) of the stream (seed, purpose, index)."""
    return _units(_generator(stream_key(seed, purpose, index)).random_raw(count))


def uniforms_of(
    seed: int, purpose: str, indices: Iterable[int], counts: NDArray[np.int64]
) -> NDArray[np.float64]:
    """``uniforms`` of several indices, end to end: ``counts[i]`` values of the i-th, shape (sum of counts,).

    Much cheaper than one call an index: one generator serves all streams.
    """
    name = f"{seed}/{purpose}/"
    keys = _words(b"".join([_digest(f"{name}{index}") for index in indices])).reshape(-1, 2)
    generator = _generator(stream_key(seed, purpose))
    state: Any = generator.state  # before its first draw; all that streams differ in is the key
    counter = state["state"]["counter"].tolist()
    raw, stop = np.empty(int(counts.sum()), dtype=np.uint64), 0
    for key, count in zip(keys.tolist(), counts.tolist(), strict=True):
        state["state"] = {"counter": counter, "key": key}
        generator.state = state
        begin, stop = stop, stop + count
        raw[begin:stop] = generator.random_raw(count)
    return _units(raw)


def _digest(name: str) -> bytes:
    return hashlib.blake2b(name.encode(), digest_size=16).digest()


def _words(digests: bytes) -> NDArray[np.uint64]:
    return np.frombuffer(digests, dtype="<u8").astype(np.uint64)


def _units(raw: NDArray[np.uint64]) -> NDArray[np.float64]:
    return ((raw >> np.uint64(11)).astype(np.float64) + 0.5) * _TO_UNIT


def _generator(key: NDArray[np.uint64]) -> np.random.Philox:
    """``Philox(key=key)``, which would first ask the operating system for entropy, in a third of the time."""
    return np.random.Philox(_Key(key))  # type: ignore[arg-type]  # NumPy's stubs know SeedSequence alone


class _Key(ISeedSequence):
    """Hands a generator its key."""

    def __init__(self, key: NDArray[np.uint64]) -> None:
        self.key = key

    def generate_state(self, n_words: int, dtype: DTypeLike = np.uint64) -> NDArray[np.uint64]:
        """Return the key: the two words of 64 bits that Philox asks for."""
        return self.key
