"""A recording as files: a compressed trace for the simulator, and beside it what it is and says."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np

from calibrate.profile import write_atomically
from calibrate.recording.record import Recording

DECIMALS = 3


def rounded(recording: Recording) -> Recording:
    """The recording to three decimals, as it is written."""
    return Recording(recording.chance.round(DECIMALS), recording.confidence.round(DECIMALS))


def write_trace(path: Path, recording: Recording, kinds: list[str]) -> None:
    """One JSON object per line and request, with its ``kind``, ``chance`` and ``confidence``; gzip."""
    rows = zip(kinds, recording.chance, recording.confidence, strict=True)
    lines = [json.dumps(_row(*row), separators=(",", ":")) + "\n" for row in rows]
    path.write_bytes(gzip.compress("".join(lines).encode(), mtime=0))


def _row(kind: str, chance: np.ndarray[Any, Any], confidence: np.ndarray[Any, Any]) -> dict[str, Any]:
    return {"kind": kind, "chance": _plain(chance), "confidence": _plain(confidence)}


def _plain(values: np.ndarray[Any, Any]) -> list[Any]:
    """Lists of numbers, 1.0 and 0.0 written as 1 and 0."""
    if values.ndim > 1:
        return [_plain(each) for each in values]
    return [int(each) if each in {0.0, 1.0} else each for each in values.round(DECIMALS).tolist()]


def write_about(path: Path, about: dict[str, Any]) -> None:
    """The trace's origin and statistics."""
    write_atomically(path, json.dumps(about, indent=1) + "\n")
