"""What importers share: what the user says about the deployment, reading files, making the profile."""

from __future__ import annotations

import csv
import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import ValidationError

from calibrate.datasheets import Gpu
from calibrate.profile import (
    SCHEMA,
    Assumption,
    Drafter,
    DrafterKind,
    ModelWork,
    Profile,
    ProfileError,
    Sample,
    Source,
    StatedError,
    Target,
    Term,
)
from calibrate.shapes import Shape

MS = 1e6
"""Nanoseconds."""


@dataclass(frozen=True)
class About:
    """What no table holds: the device, the model, and where the numbers come from.

    ``select`` picks rows of a table that holds several devices or models; ``drafters`` are the ones
    given by hand; ``draft_name`` and ``draft_kind`` name the drafter that a table or log has in it.
    """

    name: str
    gpu: Gpu
    work: ModelWork
    command: str
    shape: Shape | None = None
    source: str = ""
    created: str = "undated"
    dtype: str = "bfloat16"
    select: Mapping[str, str] = field(default_factory=dict)
    drafters: Mapping[str, Drafter] = field(default_factory=dict)
    draft_name: str = "drafter"
    draft_kind: DrafterKind = "eagle"
    error: float | None = None
    note: str = ""

    def need_shape(self, file: object) -> Shape:
        """The model's shape; ``ProfileError`` when only its size was given."""
        if self.shape is None:
            raise ProfileError(str(file), "--config", "is needed: this format times kernels, not whole steps")
        return self.shape


@dataclass(frozen=True)
class Reading:
    """What an importer found in its files."""

    verify: tuple[Term, ...]
    max_tokens: int
    sources: tuple[Source, ...]
    samples: tuple[Sample, ...] = ()
    assumptions: tuple[Assumption, ...] = ()
    drafters: Mapping[str, Drafter] = field(default_factory=dict)
    error: StatedError | None = None
    kind: Literal["measured", "composed"] = "measured"


Importer = Callable[[Sequence[Path], About], Reading]


def assemble(about: About, reading: Reading) -> Profile:
    """The profile of a reading; an error that the user states replaces the importer's."""
    error = reading.error
    if about.error is not None:
        error = StatedError(relative=about.error, basis="as stated at the import")
    try:
        return Profile(
            schema=SCHEMA,
            name=about.name,
            kind=reading.kind,
            created=about.created,
            command=about.command,
            device=about.gpu.device,
            dtype=about.dtype,
            max_tokens=reading.max_tokens,
            target=Target(work=about.work, verify=reading.verify),
            drafters={**reading.drafters, **about.drafters},
            error=error,
            sources=reading.sources,
            assumptions=reading.assumptions,
            samples=reading.samples,
            notes=about.note,
        )
    except ValidationError as problem:
        first = problem.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ProfileError(about.name, where, first["msg"].removeprefix("Value error, ")) from None


class Row(NamedTuple):
    """One row of a CSV file with its place, for messages."""

    file: str
    line: int
    values: dict[str, str]

    def wrong(self, column: str, wanted: str) -> ProfileError:
        """The error that ``column`` of this row is not what is ``wanted``."""
        found = self.values.get(column, "")
        return ProfileError(self.file, f"line {self.line}", f"{column} is {found!r}; {wanted}")

    def positive(self, column: str) -> float:
        """A finite number above 0; ``ProfileError`` otherwise."""
        try:
            value = float(self.values[column])
        except ValueError:
            value = math.nan
        if not 0 < value < math.inf:
            raise self.wrong(column, "give a number above 0")
        return value

    def count(self, column: str) -> int:
        """A whole number from 1 on; ``ProfileError`` otherwise."""
        value = self.positive(column)
        if value != int(value):
            raise self.wrong(column, "give a whole number from 1 on")
        return int(value)


def csv_rows(path: Path, columns: Iterable[str], example: str) -> list[Row]:
    """Rows of a CSV file that has ``columns`` (more are kept); ``#`` lines and empty ones are skipped."""
    lines = [
        (number, line)
        for number, line in enumerate(_text(path).splitlines(), start=1)
        if line.strip() and not line.lstrip().startswith("#")
    ]
    if not lines:
        raise ProfileError(str(path), "file", f"has no rows; give a header and rows, as in {example}")
    header = [name.strip() for name in next(csv.reader([lines[0][1]]))]
    missing = [name for name in columns if name not in header]
    if missing:
        message = f"has no column {missing[0]!r}; give a header, as in {example}"
        other = [name for mark, name in ((";", "semicolons"), ("\t", "tabs")) if mark in lines[0][1]]
        hint = f" (it has {other[0]}: separate values by commas)" if other else ""
        raise ProfileError(str(path), f"line {lines[0][0]}", message + hint)
    rows = [_row(path, number, line, header) for number, line in lines[1:]]
    if not rows:
        raise ProfileError(str(path), "file", f"has a header and no rows; give rows, as in {example}")
    return rows


def _row(path: Path, number: int, line: str, header: Sequence[str]) -> Row:
    cells = [cell.strip() for cell in next(csv.reader([line]))]
    if len(cells) != len(header):
        message = f"has {len(cells)} values and the header {len(header)}; give one value per column"
        raise ProfileError(str(path), f"line {number}", message)
    return Row(str(path), number, dict(zip(header, cells, strict=True)))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ProfileError(str(path), "file", f"cannot be read ({error.strerror})") from None
    except UnicodeDecodeError as error:
        raise ProfileError(str(path), f"byte {error.start}", "is not UTF-8 text; save it as UTF-8") from None


def json_objects(path: Path) -> list[dict[str, Any]]:
    """The object, the list of objects, or the objects line by line of a JSON file."""
    text = _text(path)
    try:
        data = json.loads(text)
    except json.JSONDecodeError as whole:
        lines = [line for line in text.splitlines() if line.strip()]
        try:
            data = [json.loads(line) for line in lines] if len(lines) > 1 else None
        except json.JSONDecodeError:
            data = None
        if data is None:
            raise ProfileError(str(path), f"line {whole.lineno}", f"is not JSON ({whole.msg})") from None
    objects = data if isinstance(data, list) else [data]
    if not objects or not all(isinstance(item, dict) for item in objects):
        raise ProfileError(str(path), "file", "holds no JSON object; give the file that the tool wrote")
    return objects


def numbers(data: Mapping[str, Any], key: str, path: Path, least: float = 0.0) -> tuple[float, ...]:
    """The list ``key`` of finite numbers of at least ``least``; ``ProfileError`` names the bad entry."""
    values = data.get(key)
    if not isinstance(values, list) or not values:
        raise ProfileError(str(path), key, "is missing or empty; give the file that the profiler wrote")
    for index, value in enumerate(values):
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value < math.inf:
            raise ProfileError(str(path), f"{key}[{index}]", f"is {value!r}; give a number from {least:g} on")
    return tuple(float(value) for value in values)


def rising(values: Sequence[float], key: str, path: Path) -> tuple[int, ...]:
    """``values`` as rising whole numbers; ``ProfileError`` names the entry that is not."""
    for index, value in enumerate(values):
        if value != int(value) or (index and value <= values[index - 1]):
            message = f"is {value:g}; give whole numbers that rise from entry to entry"
            raise ProfileError(str(path), f"{key}[{index}]", message)
    return tuple(int(value) for value in values)


def same_length(key: str, one: Sequence[object], other: Sequence[object], path: Path) -> None:
    """``ProfileError`` when two lists that belong together differ in length."""
    if len(one) != len(other):
        raise ProfileError(
            str(path), key, f"has {len(one)} entries, its counts {len(other)}; give one for each"
        )


def file_source(key: str, path: Path, what: str, about: About) -> Source:
    """A file with its digest; the user's own words about it are kept."""
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    words = f"{what}. {about.source}" if about.source else what
    return Source(name=key, what=words, file=path.name, sha256=digest)


def step_samples(key: str, points: Iterable[tuple[int, float]], over: str = "tokens") -> tuple[Sample, ...]:
    """Whole steps as samples: (count, ms)."""
    return tuple(Sample(op="step", shape={over: n}, us=round(ms * 1e3, 6), source=key) for n, ms in points)


LEAST_RISE = 1e-3
"""A table has to rise by this share at least, however quiet its measurements."""


def not_flat(ms: Sequence[float], key: str, file: object, noise: float = 0.0) -> None:
    """``ProfileError`` where the last step is not dearer than its first by more than a share ``noise``."""
    if ms[-1] <= ms[0] * (1 + max(noise, LEAST_RISE)):
        message = (
            f"is flat or falls: {ms[0]:.6g} ms at its first point, {ms[-1]:.6g} ms at its last, so any depth "
            "would be free; measure larger steps, or profile it again"
        )
        raise ProfileError(str(file), key, message)


CONTEXT = Assumption(
    what="target.verify: context",
    value="what the measured steps had",
    why="the table has one context; time for reading the cache is inside it and does not grow with context",
)
