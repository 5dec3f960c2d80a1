"""The form of a replayed report: a table, and sentences that the simulator has to make true."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Check:
    """One sentence that the simulator has to make true."""

    says: str
    holds: bool


@dataclass(frozen=True)
class Case:
    """One reported situation, replayed: a table (first row: headings), checks, and what to read in them."""

    id: str
    title: str
    source: str
    scenarios: tuple[str, ...]
    inputs: str
    table: tuple[tuple[str, ...], ...]
    checks: tuple[Check, ...]
    reading: str


@dataclass(frozen=True)
class Ablation:
    """What makes the effect: the same scenario with and without one switch or term.

    ``says`` names the switch, the table (first row: headings) holds the runs, and the checks say that the
    effect goes away.
    """

    says: str
    table: tuple[tuple[str, ...], ...]
    checks: tuple[Check, ...]


def verdict(checks: Sequence[Check]) -> str:
    """``reproduced``, or ``in part`` with the number of sentences that hold."""
    held = sum(check.holds for check in checks)
    return "reproduced" if held == len(checks) else f"in part: {held} of {len(checks)} sentences hold"


@dataclass(frozen=True)
class Gap:
    """One reported situation that is not simulated: what was reported, and which mechanism is missing."""

    id: str
    title: str
    source: str
    reported: str
    missing: str

    @property
    def verdict(self) -> str:
        """A word for the overview."""
        return "not simulated"


def within(simulated: Sequence[float], reported: Sequence[float], band: float) -> bool:
    """Whether every value is within ``band`` of what was reported."""
    return bool(np.all(np.abs(np.subtract(simulated, reported)) <= band))


def three(values: Sequence[float]) -> tuple[str, ...]:
    """Three decimals."""
    return tuple(f"{value:.3f}" for value in values)


def signed(simulated: Sequence[float], reported: Sequence[float]) -> tuple[str, ...]:
    """Differences from the report, with their sign."""
    return tuple(f"{s - r:+.3f}" for s, r in zip(simulated, reported, strict=True))


def falls(values: Sequence[float]) -> bool:
    """Whether each value is below the one before."""
    return bool(np.all(np.diff(values) < 0))
