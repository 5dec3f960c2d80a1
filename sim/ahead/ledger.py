"""What a compiled run writes down: rows moved out of its buffers, and the records made of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from sim.ahead import layout as at
from sim.ahead.layout import Int64, World
from sim.engine.simulate import Setup, records_of
from sim.results.records import REQUEST_COLUMNS, STEP_COLUMNS
from sim.results.run_records import Columns, RunRecords

_STEP_AT: Final = {name: place for place, name in enumerate(STEP_COLUMNS)} | at.MORE


class Ledger:
    """Steps and gaps of a run, in the order in which they were written."""

    def __init__(self) -> None:
        self._steps: list[Int64] = []
        self._gaps: list[Int64] = []

    def take(self, world: World) -> None:
        """Move what is in the buffers."""
        self._steps.append(world.steps[: world.k[at.STEPS]].copy())
        self._gaps.append(world.gaps[: world.k[at.GAPS]].copy())
        world.k[[at.STEPS, at.GAPS]] = 0

    def records(self, setup: Setup, world: World, more: tuple[str, ...]) -> list[RunRecords]:
        """Records replica by replica; ``more`` names the step columns that only some engines have."""
        finished = world.q[:, at.Q["finish_ns"]] >= 0
        steps, gaps = np.concatenate(self._steps), np.concatenate(self._gaps)
        found = []
        for r in range(len(world.s)):
            mine = finished & (world.q[:, at.HOME] == r)
            requests = _columns(world.q[mine], at.Q, REQUEST_COLUMNS)
            own = _columns(steps[steps[:, -1] == r], _STEP_AT, (*STEP_COLUMNS, *more))
            capacity = int(world.k[at.CAPACITY])
            found.append(records_of(setup, requests, own, gaps[gaps[:, -1] == r, :3], capacity))
        return found


def _columns(rows: Int64, places: Mapping[str, int], names: Sequence[str]) -> Columns:
    return {name: rows[:, places[name]].copy() for name in names}
