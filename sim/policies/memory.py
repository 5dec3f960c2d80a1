"""One number per request, remembered from step to step."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sim.policies.base import Int64

Float = NDArray[np.float64]


class PerRequest:
    """Values by request number, ``start`` for requests not yet seen; grows as numbers come up.

    ``width`` > 0 keeps that many values per request.
    """

    def __init__(self, start: float, width: int = 0) -> None:
        self._start = start
        self._tail = (width,) if width else ()
        self._values = np.full((256, *self._tail), start)

    def of(self, requests: Int64) -> Float:
        """Values of ``requests``, shape (requests,) or (requests, width); a copy."""
        self._reach(requests)
        return self._values[requests]

    def put(self, requests: Int64, values: NDArray[np.floating]) -> None:
        """Remember ``values`` for ``requests``."""
        self._reach(requests)
        self._values[requests] = values

    def _reach(self, requests: Int64) -> None:
        most = int(requests.max(initial=-1))
        if most >= len(self._values):
            more = np.full((2 * most + 1 - len(self._values), *self._tail), self._start)
            self._values = np.concatenate([self._values, more])
