"""The front of a fleet: takes every request, sends it to one replica, and counts what is in flight."""

from __future__ import annotations

from collections.abc import Callable

from sim.engine.batch import Sequence
from sim.engine.replica import Replica
from sim.fleet.routers import Router


class Front:
    """A server made of replicas; ``done`` is called with the number of each finished request.

    ``home`` holds the replica of every request, 0 for one that was not sent yet. A request that
    finishes at the very instant at which another arrives still counts as in flight.
    """

    def __init__(self, replicas: list[Replica], router: Router, requests: int) -> None:
        self.replicas, self.router = replicas, router
        self.home = [0] * requests
        self.in_flight = [0] * len(replicas)
        self.done: Callable[[int], None] = lambda request: None
        for replica in replicas:
            replica.done = self._finished

    def submit(self, sequence: Sequence) -> None:
        """Send one request to the replica that the router chooses."""
        chosen = self.router.choose(sequence.request, self.in_flight)
        self.home[sequence.request] = chosen
        self.in_flight[chosen] += 1
        self.replicas[chosen].submit(sequence)

    def abort(self, request: int) -> None:
        """Tell the replica of a request that its client went away."""
        self.replicas[self.home[request]].abort(request)

    def _finished(self, request: int) -> None:
        self.in_flight[self.home[request]] -= 1
        self.done(request)
