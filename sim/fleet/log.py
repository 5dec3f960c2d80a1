"""What a live fleet writes down: which replicas ran when, and which requests were moved or lost."""

from __future__ import annotations

from array import array

import numpy as np

from sim.results.fleet_record import CHANGES, MOVES, State
from sim.results.run_records import Columns


class FleetLog:
    """Growing columns of changes (time, replica, state) and of moves (time, request, replica, what)."""

    def __init__(self) -> None:
        self._changes, self._moves = array("q"), array("q")

    def change(self, now: int, replica: int, state: State) -> None:
        """A replica is in another state from now on."""
        self._changes.extend((now, replica, int(state)))

    def move(self, now: int, request: int, replica: int, what: int) -> None:
        """A request that a replica had was sent again, or is lost."""
        self._moves.extend((now, request, replica, what))

    @property
    def changes(self) -> Columns:
        """Columns of the changes, in the order in which they came about."""
        return _columns(self._changes, CHANGES)

    @property
    def moves(self) -> Columns:
        """Columns of the moves, in the order in which they came about."""
        return _columns(self._moves, MOVES)


def _columns(values: array[int], names: tuple[str, ...]) -> Columns:
    rows = np.array(values, dtype=np.int64).reshape(-1, len(names))
    return {name: rows[:, i].copy() for i, name in enumerate(names)}
