"""Routers: which replica a request goes to, from what a router before the engines knows.

A router counts what it sent and what came back; it sees no queue, no batch and no length. Each
rule is one class and one line of ``ROUTERS``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, Protocol

import numpy as np

from sim.fleet.config import RouterName
from sim.streams import uniforms


class Router(Protocol):
    """Chooses replicas; one instance per run, asked once per request in the order of sending."""

    def choose(self, request: int, in_flight: Sequence[int]) -> int:
        """Number of the replica for a request; ``in_flight`` counts what each holds, read only."""
        ...


class RoundRobin:
    """One replica after the other."""

    def __init__(self) -> None:
        self.sent = 0

    def choose(self, request: int, in_flight: Sequence[int]) -> int:
        """The next in turn."""
        self.sent += 1
        return (self.sent - 1) % len(in_flight)


class LeastRequests:
    """The replica with the fewest requests in flight; among equals, the next in turn."""

    def __init__(self) -> None:
        self.last = -1

    def choose(self, request: int, in_flight: Sequence[int]) -> int:
        """The first of the least busy ones behind the replica that was chosen last."""
        count = len(in_flight)
        turns = ((self.last + turn) % count for turn in range(1, count + 1))
        self.last = min(turns, key=in_flight.__getitem__)
        return self.last


class PowerOfTwo:
    """The less busy of two replicas drawn at random.

    Mitzenmacher, "The power of two choices in randomized load balancing", IEEE TPDS 12(10), 2001.
    The draws of a request depend on (seed, request) alone, whatever replicas there are to draw from.
    """

    def __init__(self, replicas: int, requests: int, seed: int) -> None:
        u = uniforms(seed, "router", 0, 2 * requests).reshape(-1, 2)
        self.replicas, self.u = replicas, u
        first = np.floor(u[:, 0] * replicas).astype(np.int64)
        other = np.floor(u[:, 1] * max(replicas - 1, 1)).astype(np.int64)
        self.first = first.tolist()
        self.second = np.minimum(other + (other >= first), replicas - 1).tolist()

    def choose(self, request: int, in_flight: Sequence[int]) -> int:
        """The first of the pair unless the second holds fewer."""
        if len(in_flight) == self.replicas:
            first, second = self.first[request], self.second[request]
        else:
            first, second = self._pair(request, len(in_flight))
        return int(second if in_flight[second] < in_flight[first] else first)

    def _pair(self, request: int, replicas: int) -> tuple[int, int]:
        """The pair drawn from another number of replicas."""
        one, other = self.u[request].tolist()
        first, second = int(one * replicas), int(other * max(replicas - 1, 1))
        return first, min(second + (second >= first), replicas - 1)


ROUTERS: Final[Mapping[RouterName, Callable[[int, int, int], Router]]] = MappingProxyType(
    {
        "round_robin": lambda replicas, requests, seed: RoundRobin(),
        "least_requests": lambda replicas, requests, seed: LeastRequests(),
        "power_of_two": PowerOfTwo,
    }
)
"""Each makes a fresh router for so many replicas, so many requests, and a seed."""
