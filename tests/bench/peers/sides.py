"""Who is measured: one command of one simulator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Facts:
    """What a simulator says of its run; ``None``: it does not say.

    ``requests`` were answered; ``loop_s`` leaves out start, reading and writing; ``steps`` are engine steps.
    """

    requests: int | None
    simulated_s: float | None = None
    loop_s: float | None = None
    steps: int | None = None
    more: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Side:
    """A command; ``read`` finds the facts in its output; ``scenario`` is what leadline reads."""

    name: str
    version: str
    command: tuple[str, ...]
    folder: Path
    read: Callable[[str], Facts]
    environment: Mapping[str, str] = field(default_factory=dict)
    notes: str = ""
    scenario: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Absent:
    """A simulator that is not here, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class Case:
    """One workload, the peer that simulates it, and leadline's own runs of it."""

    title: str
    about: str
    peer: Side | Absent
    ours: tuple[Side, ...]
