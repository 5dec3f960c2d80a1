"""What a compiled run writes down: rows moved out of its buffers, and the records made of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from sim.ahead import layout as at
from sim.ahead.layout import Int64, World
from sim.engine.simulate import Setup, records_of
from sim.results.records import REQUEST_COLUMNS, STEP_COLUMNS
from sim.results.run_records import Columns, RunRecords

_STEP_AT: Final = {name: place for place, name in enumerate(STEP_COLUMNS)} | at.MORE


class Ledger:
    """Steps and gaps of a run, column by column, in the order in which they were written."""

    def __init__(self, more: tuple[str, ...]) -> None:
        """Keep the columns of every engine and, of those that only some have, ``more``."""
        self._names = (*STEP_COLUMNS, *more)
        self._steps: dict[str, list[Int64]] = {name: [] for name in (*self._names, "replica")}
        self._gaps: list[Int64] = []

    def take(self, world: World) -> None:
        """Move what is in the buffers."""
        steps = world.steps[:, : world.k[at.STEPS]]
        for name in self._names:
            self._steps[name].append(steps[_STEP_AT[name]].copy())
        self._steps["replica"].append(steps[-1].copy())
        self._gaps.append(world.gaps[: world.k[at.GAPS]].copy())
        world.k[[at.STEPS, at.GAPS]] = 0

    def records(self, setup: Setup, world: World) -> RunRecords:
        """Records of the run, once; of several replicas as ``sim.fleet.fleet.merge`` would make them."""
        several = len(world.s) > 1
        done = world.q[world.q[:, at.Q["finish_ns"]] >= 0]
        requests = {name: done[:, at.Q[name]].copy() for name in REQUEST_COLUMNS}
        if several:
            requests["replica"] = done[:, at.HOME].copy()
        gaps = np.concatenate(self._gaps)
        gaps = gaps[np.argsort(gaps[:, 3], kind="stable")] if several else gaps
        found = records_of(setup, requests, self._columns(several), gaps, int(world.k[at.CAPACITY]))
        return replace(found, replicas=len(world.s))

    def _columns(self, several: bool) -> Columns:
        """Steps, replica by replica; what was kept of each column is let go of at once."""
        place = np.argsort(np.concatenate(self._steps["replica"]), kind="stable") if several else slice(None)
        names = (*self._names, *(("replica",) if several else ()))
        return {name: np.concatenate(self._steps.pop(name))[place] for name in names}
