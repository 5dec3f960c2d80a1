"""Output positions of several requests in one array, so that their luck is drawn in few calls."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from sim.streams import uniforms, uniforms_of

Floats = NDArray[np.float64]
Int64 = NDArray[np.int64]
_Value = TypeVar("_Value", bound=np.generic)


@dataclass(frozen=True)
class Spans:
    """The first ``counts[i]`` output positions of every request ``requests[i]``, end to end.

    What is called flat has one entry for each of them, shape (sum of counts,); a request's entries are
    the same whichever others stand beside it.
    """

    requests: Int64
    counts: Int64

    @classmethod
    def one(cls, request: int, count: int) -> Spans:
        """The first ``count`` positions of one request."""
        return cls(np.array([request]), np.array([count]))

    @cached_property
    def stops(self) -> Int64:
        """Where each request ends, shape (requests,)."""
        return np.cumsum(self.counts)

    @cached_property
    def starts(self) -> Int64:
        """Where each request begins, shape (requests,)."""
        return self.stops - self.counts

    @cached_property
    def positions(self) -> Int64:
        """Output position of every entry, from 0, flat."""
        return np.arange(int(self.counts.sum())) - self.spread(self.starts)

    def but_last(self, count: int) -> NDArray[np.bool_]:
        """Whether an entry is not among the last ``count`` of its request, flat; no request has fewer."""
        kept = np.ones(int(self.counts.sum()), dtype=np.bool_)
        for back in range(1, count + 1):
            kept[self.stops - back] = False
        return kept

    def longer(self, by: int) -> Spans:
        """The same requests with ``by`` more positions each."""
        return Spans(self.requests, self.counts + by)

    def spread(self, values: NDArray[_Value]) -> NDArray[_Value]:
        """One value a request at each of its positions, flat."""
        return np.repeat(values, self.counts)

    def uniforms(self, seed: int, purpose: str) -> Floats:
        """A draw for every entry, from one stream a request, flat."""
        if len(self.counts) == 1:
            return uniforms(seed, purpose, int(self.requests[0]), int(self.counts[0]))
        return uniforms_of(seed, purpose, self.requests.tolist(), self.counts)
