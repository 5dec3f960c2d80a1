"""Runs whose replicas nothing outside can change between two events: all their steps in compiled calls."""

from __future__ import annotations

from typing import Final

import numpy as np
import simpy

from sim.ahead import layout as at
from sim.ahead.layout import Int64
from sim.ahead.ledger import Ledger
from sim.ahead.world import build_world, draw_more
from sim.engine.simulate import Setup, build_replica
from sim.errors import SimulationError
from sim.fleet.routers import PowerOfTwo
from sim.policies.by_batch import ByBatch
from sim.results.run_records import RunRecords

ROUTER_CODES: Final = {
    "round_robin": at.ROUND_ROBIN,
    "least_requests": at.LEAST_REQUESTS,
    "power_of_two": at.POWER_OF_TWO,
}
"""Routers that know nothing but what they sent and what came back."""


def run_ahead(setup: Setup, policy: ByBatch, replicas: int = 1, router: str = "round_robin") -> RunRecords:
    """Records as ``simulate`` and ``simulate_fleet`` would make them, byte for byte.

    ``router`` is one of ``ROUTER_CODES``.
    """
    from sim.ahead import kernel

    like = build_replica(simpy.Environment(), setup, policy)
    world = build_world(setup, like, replicas, ROUTER_CODES[router], _pairs(setup, replicas, router))
    ledger = Ledger(like.host.more)
    while True:
        code = kernel.replay(world)
        if code == kernel.STUCK:
            raise SimulationError("a replica has requests and nothing to compute")
        if code == kernel.UNDRAWN:
            world = draw_more(setup, world)
        else:
            ledger.take(world)
        if code == kernel.DONE:
            return ledger.records(setup, world)


def _pairs(setup: Setup, replicas: int, router: str) -> Int64 | None:
    """The two replicas drawn for each request, if the router draws any."""
    if router != "power_of_two":
        return None
    drawn = PowerOfTwo(replicas, len(setup.requests), setup.seed)
    return np.array([drawn.first, drawn.second], dtype=np.int64).T
