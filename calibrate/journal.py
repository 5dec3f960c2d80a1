"""The journal of a campaign: one JSON line per finished cell, on the disk before the next begins.

The first line says what is measured; a journal of something else is refused. A line that a crash
cut short is dropped when the journal is read again, as is a cell that is there twice; samples that
no campaign can have written are refused.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from math import isclose
from pathlib import Path
from statistics import median
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from calibrate.cells import Cell, Measured, PassName

SCHEMA = "leadline.journal/1"
Us = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Slot = Literal["grid", "first", "middle", "last", "resumed", "adaptive"]


class JournalError(ValueError):
    """A journal that cannot be gone on with: which file, what is wrong, what to do."""


class Finished(BaseModel):
    """One cell of the plan, measured or skipped.

    ``number`` counts occasions of the same slot (passes over the grid; resumptions). A round has
    one ``Measured`` per pass, the whole and the host among them. ``other_us`` are the samples of
    the same windows on the timer's second clock.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    slot: Slot
    number: int = 0
    cell: Cell
    measured: tuple[Measured, ...] = ()
    other_us: dict[PassName, tuple[Us, ...]] = Field(default_factory=dict)
    skipped: str = ""

    @field_validator("measured")
    @classmethod
    def _as_a_timer_gives(cls, measured: tuple[Measured, ...]) -> tuple[Measured, ...]:
        for each in measured:
            wrong = _wrong(each)
            if wrong:
                raise ValueError(f"{each.cell.pass_}: {wrong}")
        return measured

    @property
    def key(self) -> Key:
        """What identifies this work in the plan."""
        return self.slot, self.number, self.cell


Key = tuple[Slot, int, Cell]


def _wrong(measured: Measured) -> str:
    """What no timer gives, "" where there is nothing of the kind."""
    samples, (low, high) = measured.samples_us, measured.ci_us
    if not all(0 < us < float("inf") for us in samples):
        return "every sample must be above 0 and finite"
    if not isclose(measured.median_us, median(samples), rel_tol=1e-6):
        return f"median_us is {measured.median_us:g}, that of the samples {median(samples):g}"
    if not low <= measured.median_us <= high:
        return f"ci_us from {low:g} to {high:g} does not enclose median_us {measured.median_us:g}"
    return ""


class Journal:
    """The finished cells in a file, in the order they finished. ``about`` names what is measured."""

    def __init__(self, path: Path, about: Mapping[str, Any]) -> None:
        self.path = path
        self._about = {"schema": SCHEMA, **about}
        self.finished: list[Finished] = []
        self.resumed = False

    def open(self, resume: bool) -> None:
        """Start a new journal, or read the one that is there; raises ``JournalError``."""
        if not self.path.exists() or self.path.stat().st_size == 0:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._append(self._about)
            return
        lines = self._whole_lines()
        if not resume:
            holds = f"{self.path}: holds {max(len(lines) - 1, 0)} finished cells"
            raise JournalError(f"{holds}; add --resume to go on, or remove the file to start again")
        self._check(lines[0] if lines else "")
        read = [self._parse(line, number) for number, line in enumerate(lines[1:], start=2)]
        first: dict[Key, Finished] = {}
        for each in read:
            first.setdefault(each.key, each)
        self.finished = list(first.values())
        self.resumed = True

    def add(self, finished: Finished) -> None:
        """Keep one finished cell: it is on the disk when this returns."""
        self._append(finished.model_dump(mode="json", by_alias=True, exclude_defaults=True))
        self.finished.append(finished)

    def _append(self, value: Mapping[str, Any]) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(value, allow_nan=False) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def _whole_lines(self) -> list[str]:
        """The complete lines; a last line without its end is cut off the file."""
        data = self.path.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        if len(whole) < len(data):
            with self.path.open("r+b") as file:
                file.truncate(len(whole))
        return whole.decode("utf-8", "replace").splitlines()

    def _check(self, header: str) -> None:
        found = _decoded(header)
        for field, value in self._about.items():
            if not isinstance(found, dict) or found.get(field) != value:
                was = found.get(field) if isinstance(found, dict) else None
                message = f"cannot be resumed: {field} is {was!r} there and {value!r} now"
                raise JournalError(f"{self.path}: {message}; give the same options, or another --out")

    def _parse(self, line: str, number: int) -> Finished:
        try:
            return Finished.model_validate_json(line)
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(str(part) for part in first["loc"]) or "line"
            raise JournalError(
                f"{self.path}: line {number}: {field}: {first['msg']}; remove that line"
            ) from None


def _decoded(line: str) -> Any:
    try:
        return json.loads(line)
    except json.JSONDecodeError:
        return None
