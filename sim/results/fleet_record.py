"""What became of the replicas of a fleet in one run: their groups, when they ran, what they lost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sim.units import NS_PER_S

Int64 = NDArray[np.int64]
CHANGES: Final = ("time_ns", "replica", "state")
MOVES: Final = ("time_ns", "request", "replica", "what")
RETRIED, FAILED = 0, 1
"""What becomes of a request whose replica fails: it is sent again, or its client gets an error."""
_S_PER_H: Final = 3600


class State(IntEnum):
    """What a replica does. All but ``OFF`` are paid for."""

    OFF = 0
    STARTING = 1
    OPEN = 2  # takes requests
    DRAINING = 3  # answers those it has, then stops
    DOWN = 4  # failed, not back yet


@dataclass(frozen=True)
class FleetRecord:
    """The fleet of one run, which ended at ``end_ns``.

    ``names`` are those of the groups, ``roles`` what they do, ``group`` the group of every replica and
    ``kv_blocks`` its KV blocks; ``gpus`` the devices of one replica of every group. ``changes`` has a row
    per change of a replica's state (the first ones at 0), ``moves`` one per request that a failed replica
    lost, and what became of it.
    """

    names: tuple[str, ...]
    roles: tuple[str, ...]
    gpus: tuple[int, ...]
    group: Int64
    kv_blocks: Int64
    changes: Mapping[str, Int64]
    moves: Mapping[str, Int64]
    end_ns: int

    @property
    def failed(self) -> int:
        """Requests whose clients got an error."""
        return int(np.count_nonzero(self.moves["what"] == FAILED))

    @property
    def failed_requests(self) -> Int64:
        """Their numbers."""
        failed: Int64 = self.moves["request"][self.moves["what"] == FAILED]
        return failed

    @property
    def retried(self) -> int:
        """How often a request was sent again."""
        return int(np.count_nonzero(self.moves["what"] == RETRIED))

    def paid_ns(self, start_ns: int = 0, end_ns: int | None = None) -> NDArray[np.float64]:
        """Time within [start, end] in which each replica was not off."""
        end = self.end_ns if end_ns is None else end_ns
        paid = np.zeros(len(self.group))
        since: dict[int, int] = {}
        for time, replica, state in zip(*(self.changes[name].tolist() for name in CHANGES), strict=True):
            if state == State.OFF and replica in since:
                paid[replica] += _overlap(since.pop(replica), time, start_ns, end)
            elif state != State.OFF:
                since.setdefault(replica, time)
        for replica, begun in since.items():
            paid[replica] += _overlap(begun, max(end, begun), start_ns, end)
        return paid

    @property
    def replica_hours(self) -> float:
        """Hours for which replicas were paid, start-up and failures included."""
        return float(self.paid_ns().sum()) / NS_PER_S / _S_PER_H

    @property
    def gpu_hours(self) -> float:
        """The same by devices."""
        gpus = np.asarray(self.gpus)[self.group]
        return float((self.paid_ns() * gpus).sum()) / NS_PER_S / _S_PER_H

    def counts(self) -> tuple[Int64, Int64]:
        """When the number of replicas that take requests changed, and what it was from then on."""
        columns = (self.changes[name].tolist() for name in CHANGES)
        open_: set[int] = set()
        counted: dict[int, int] = {}
        for time, replica, state in zip(*columns, strict=True):
            (open_.add if state == State.OPEN else open_.discard)(replica)
            counted[time] = len(open_)
        times = np.array(list(counted), dtype=np.int64)
        counts = np.array(list(counted.values()), dtype=np.int64)
        new = np.diff(counts, prepend=-1) != 0
        return times[new], counts[new]

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "names": list(self.names),
            "roles": list(self.roles),
            "gpus": list(self.gpus),
            "group": self.group.tolist(),
            "kv_blocks": self.kv_blocks.tolist(),
            "changes": {name: self.changes[name].tolist() for name in CHANGES},
            "moves": {name: self.moves[name].tolist() for name in MOVES},
            "end_ns": self.end_ns,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> FleetRecord:
        """Read back what ``to_json`` gave."""

        def columns(of: Mapping[str, list[int]], names: tuple[str, ...]) -> dict[str, Int64]:
            return {name: np.array(of[name], dtype=np.int64) for name in names}

        return cls(
            names=tuple(data["names"]),
            roles=tuple(data["roles"]),
            gpus=tuple(data["gpus"]),
            group=np.array(data["group"], dtype=np.int64),
            kv_blocks=np.array(data["kv_blocks"], dtype=np.int64),
            changes=columns(data["changes"], CHANGES),
            moves=columns(data["moves"], MOVES),
            end_ns=data["end_ns"],
        )


def _overlap(start: int, end: int, low: int, high: int) -> int:
    return max(min(end, high) - max(start, low), 0)
