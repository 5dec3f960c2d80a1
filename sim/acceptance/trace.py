"""Recorded acceptance: one JSON object per line and request (docs/acceptance.md describes the file)."""

from __future__ import annotations

import gzip
import json
import zlib
from dataclasses import dataclass
from pathlib import Path as FilePath

import numpy as np
from numpy.typing import NDArray

from sim.acceptance.confidence import Claimed
from sim.acceptance.paths import MAX_DEPTH, Runs, ahead
from sim.errors import InputError, TraceError

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class SeenRow:
    """One recorded request of which run lengths were seen, ``accepted`` of shape (positions,).

    ``confidence``, if recorded, has shape (positions,) or (positions, depths). ``depth`` is the
    depth of the recording where the row states it.
    """

    accepted: Runs
    confidence: Claimed | None
    depth: int | None

    @property
    def positions(self) -> int:
        """Recorded output positions."""
        return len(self.accepted)

    def chances(self, positions: int, max_depth: int) -> Floats:
        """Certainty: 1 within a run, 0 behind it, shape (positions, max_depth)."""
        run = np.resize(self.accepted, positions)
        return (np.arange(max_depth) < run[:, None]).astype(np.float64)


@dataclass(frozen=True)
class ChanceRow:
    """One recorded request of which the chance of every draft is known.

    ``chance`` has shape (positions,) for a drafter whose draft for a position does not depend on
    where its round started, else (positions, depths): of draft ``j`` of a round started at ``p``,
    given the drafts before it. ``confidence`` has either shape, too.
    """

    chance: Floats
    confidence: Claimed | None
    depth: int | None

    @property
    def positions(self) -> int:
        """Recorded output positions."""
        return len(self.chance)

    def chances(self, positions: int, max_depth: int) -> Floats:
        """Chance of draft ``j`` of a round started at ``p``, shape (positions, max_depth)."""
        return by_start(self.chance, positions, max_depth)


Row = SeenRow | ChanceRow


def by_start(values: Floats | Claimed, positions: int, max_depth: int) -> Floats:
    """Recorded values by start and draft, shape (positions, max_depth); a longer output starts again.

    Values of shape (recorded,) belong to output positions, of shape (recorded, depths) to rounds;
    0 for drafts deeper than these.
    """
    if values.ndim == 1:
        return ahead(np.resize(values, positions + max_depth), positions, max_depth)
    table = np.zeros((positions, max_depth), dtype=values.dtype)
    depth = min(max_depth, values.shape[1])
    table[:, :depth] = values[np.arange(positions) % len(values), :depth]
    return table


def read_trace(path: FilePath, span_key: str = "acc_eagle") -> list[Row]:
    """Rows of an acceptance trace, ``.gz`` or plain; ``TraceError`` names the line of the first bad one."""
    try:
        lines = _text(path).splitlines()
    except (OSError, UnicodeDecodeError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: cannot read the acceptance trace ({error})") from error
    rows = []
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                rows.append(_parse(line, span_key))
            except ValueError as error:
                raise TraceError(str(path), number, str(error)) from error
    if not rows:
        raise InputError(f"{path}: the acceptance trace has no rows; it needs one JSON object per request")
    return rows


def _text(path: FilePath) -> str:
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8")


def _parse(line: str, span_key: str) -> Row:
    """One row; ``ValueError`` says what is wrong."""
    record = json.loads(line)
    if not isinstance(record, dict):
        raise ValueError(f'a row is an object like {{"accepted": [2, 0, 1]}}, not {type(record).__name__}')
    depth = record.get("depth")
    if depth is not None and (type(depth) is not int or not 1 <= depth <= MAX_DEPTH):
        raise ValueError(f"depth is {depth!r}; it must be a whole number from 1 to {MAX_DEPTH}")
    if "chance" in record:
        return _chance_row(record, depth)
    accepted = _accepted(record, span_key)
    return SeenRow(accepted, _confidence(record.get("confidence"), len(accepted)), depth)


def _chance_row(record: dict[str, object], depth: int | None) -> ChanceRow:
    if "accepted" in record:
        raise ValueError("the row has both 'accepted' and 'chance'; keep the one that was recorded")
    chance = _probabilities("chance", record["chance"], None)
    if chance.ndim == 2:
        depth = min(depth or MAX_DEPTH, chance.shape[1])
    return ChanceRow(chance, _confidence(record.get("confidence"), len(chance)), depth)


def _accepted(record: dict[str, object], span_key: str) -> Runs:
    """Read accepted drafts per position from ``accepted`` or from spans that count the bonus token."""
    if "accepted" in record:
        return _whole_numbers("accepted", record["accepted"], 0)
    if span_key not in record:
        raise ValueError(
            f"the row has neither 'accepted' nor 'chance' nor {span_key!r}; it has {', '.join(record)}"
        )
    spans = record[span_key]
    if isinstance(spans, dict):  # SpecDecode-Bench nests its lists one level down
        spans = spans.get("acc_len")
    return _whole_numbers(span_key, spans, 1)


def _whole_numbers(key: str, values: object, least: int) -> Runs:
    """``values - least`` as runs, each value a whole number from ``least`` to ``least + 255``."""
    if not isinstance(values, list) or not values:
        raise ValueError(f"{key} must be a list of at least one whole number")
    most = least + MAX_DEPTH
    for position, value in enumerate(values):
        if type(value) is not int or not least <= value <= most:
            raise ValueError(
                f"{key}[{position}] is {value!r}; it must be a whole number from {least} to {most}"
            )
    return (np.array(values, dtype=np.int64) - least).astype(np.uint8)


def _confidence(values: object, positions: int) -> Claimed | None:
    """Read claims by position, or by position and depth; ``ValueError`` unless they are probabilities."""
    if values is None:
        return None
    return _probabilities("confidence", values, positions).astype(np.float32)


def _probabilities(key: str, values: object, positions: int | None) -> Floats:
    """Read shape (positions,) or (positions, depths); ``ValueError`` unless all are probabilities."""
    try:
        read = np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        read = np.empty(0)
    if read.ndim not in {1, 2} or read.size == 0 or (positions is not None and len(read) != positions):
        count = "one or more" if positions is None else positions
        raise ValueError(f"{key} must be {count} numbers or {count} lists of equal length, one per position")
    if not np.all((read >= 0) & (read <= 1)):
        raise ValueError(f"{key} must hold probabilities from 0 to 1")
    return read
