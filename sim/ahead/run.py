"""Runs whose replicas nothing outside can change between two events: all their steps in compiled calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from sim.acceptance.blocks import draw_block
from sim.ahead import layout as at
from sim.ahead.layout import Int64, World
from sim.engine.simulate import Setup, records_of
from sim.errors import SimulationError
from sim.fleet.routers import PowerOfTwo
from sim.policies.by_batch import ByBatch
from sim.results.records import REQUEST_COLUMNS, STEP_COLUMNS
from sim.results.run_records import Columns, RunRecords

ROUTER_CODES: Final = {
    "round_robin": at.ROUND_ROBIN,
    "least_requests": at.LEAST_REQUESTS,
    "power_of_two": at.POWER_OF_TWO,
}
"""Routers that know nothing but what they sent and what came back."""

_DRAWN_AT_ONCE: Final = 1024
_STEP_AT: Final = {name: place for place, name in enumerate(STEP_COLUMNS)} | at.MORE


def run_ahead(
    setup: Setup, policy: ByBatch, replicas: int = 1, router: str = "round_robin"
) -> list[RunRecords]:
    """Records of every replica; as ``simulate`` and ``simulate_fleet`` would make them, byte for byte.

    ``router`` is one of ``ROUTER_CODES``.
    """
    from sim.ahead import kernel
    from sim.ahead.world import build_world

    world, more = build_world(setup, policy, replicas, ROUTER_CODES[router], _pairs(setup, replicas, router))
    steps, gaps = _Spool(at.STEP_WIDTH), _Spool(4)
    while True:
        code = kernel.replay(world)
        if code == kernel.STUCK:
            raise SimulationError("a replica has requests and nothing to compute")
        if code == kernel.UNDRAWN:
            world = _draw(setup, world)
        steps.take(world.steps, world.k, at.STEPS)
        gaps.take(world.gaps, world.k, at.GAPS)
        if code == kernel.DONE:
            return _collect(setup, world, steps.rows(), gaps.rows(), more)


def _pairs(setup: Setup, replicas: int, router: str) -> Int64:
    """The two replicas drawn for each request, if the router draws any."""
    if router != "power_of_two":
        return np.empty((0, 2), dtype=np.int64)
    drawn = PowerOfTwo(replicas, len(setup.requests), setup.seed)
    return np.array([drawn.first, drawn.second], dtype=np.int64).T


class _Spool:
    """Rows that were moved out of a buffer."""

    def __init__(self, width: int) -> None:
        self.parts: list[Int64] = []
        self.width = width

    def take(self, buffer: Int64, g: Int64, count: int) -> None:
        """Move the rows that are in the buffer."""
        self.parts.append(buffer[: g[count]].copy())
        g[count] = 0

    def rows(self) -> Int64:
        """All of them, replica by replica (the last column)."""
        rows = np.concatenate(self.parts) if self.parts else np.empty((0, self.width), np.int64)
        return rows[np.argsort(rows[:, -1], kind="stable")]


def _draw(setup: Setup, world: World) -> World:
    """Draw the runs of the next requests; the world with them in it."""
    first = int(world.k[at.DRAWN])
    last = min(first + _DRAWN_AT_ONCE, len(world.q))
    q, runs = world.q[first:last], world.runs
    columns = (q[:, at.Q[name]].copy() for name in ("request", "class_id", "prompt_tokens", "output_tokens"))
    block = draw_block(setup.processes, *columns)
    start = int(q[0, at.START])
    if block.found is not None and len(runs) == 1:
        runs = np.concatenate([runs, np.ones_like(runs)])
        world.k[at.MATCHES] = 1
    runs[0, start : start + len(block.run)] = block.run
    if block.found is not None:
        runs[1, start : start + len(block.run)] = block.found
    world.k[at.DRAWN] = last
    return world._replace(runs=runs)


def _collect(
    setup: Setup, world: World, steps: Int64, gaps: Int64, more: tuple[str, ...]
) -> list[RunRecords]:
    """Records replica by replica, requests in order of intended arrival."""
    finished = world.q[:, at.Q["finish_ns"]] >= 0
    found = []
    for r in range(len(world.s)):
        mine = finished & (world.q[:, at.HOME] == r)
        rows, own_steps, own_gaps = world.q[mine], steps[steps[:, -1] == r], gaps[gaps[:, -1] == r]
        requests = _columns(rows, at.Q, REQUEST_COLUMNS)
        written = _columns(own_steps, _STEP_AT, (*STEP_COLUMNS, *more))
        found.append(records_of(setup, requests, written, own_gaps, int(world.k[at.CAPACITY])))
    return found


def _columns(rows: Int64, places: Mapping[str, int], names: Sequence[str]) -> Columns:
    return {name: rows[:, places[name]].copy() for name in names}
