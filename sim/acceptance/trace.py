"""Recorded acceptance: one JSON object per line and request."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path as FilePath

import numpy as np
from numpy.typing import NDArray

from sim.acceptance.confidence import Claimed, Claims
from sim.acceptance.config import Decay
from sim.acceptance.paths import (
    MAX_DEPTH,
    DrawnPath,
    Runs,
    ahead,
    check_depth,
    decay_factor,
    leading_runs,
    no_confidence,
)
from sim.errors import InputError, TraceError
from sim.streams import uniforms


@dataclass(frozen=True)
class Row:
    """One recorded request.

    ``accepted`` has shape (positions,); ``confidence``, if recorded, shape (positions, depths).
    ``depth`` is the depth of the recording where the row states it.
    """

    accepted: Runs
    confidence: Claimed | None
    depth: int | None


@dataclass(frozen=True)
class TraceProcess:
    """Replays recorded run lengths, tiled when an output is longer than its row.

    Requests draw rows with replacement, or in order. Decay thins a run by independent draws.
    """

    seed: int
    max_depth: int
    rows: Sequence[Row]
    in_order: bool
    decay: Decay | None
    claims: Claims | None
    mean_tokens: Callable[[int], float]

    def path(self, request: int, prompt_tokens: int, output_tokens: int) -> DrawnPath:
        """Path of request number ``request``."""
        row = self.rows[self._row(request)]
        run = np.minimum(np.resize(row.accepted, output_tokens), self.max_depth).astype(np.uint8)
        if self.decay is not None:
            run = np.minimum(run, self._thinned(self.decay, request, prompt_tokens, output_tokens))
        return DrawnPath(run, partial(self._claim, row, run, request, prompt_tokens))

    def _row(self, request: int) -> int:
        if self.in_order:
            return request % len(self.rows)
        return int(uniforms(self.seed, "acceptance/row", request, 1)[0] * len(self.rows))

    def _thinned(self, decay: Decay, request: int, prompt_tokens: int, output_tokens: int) -> Runs:
        """Draw the runs that decay alone would leave of endless ones."""
        count = output_tokens + self.max_depth
        fade = np.maximum(decay_factor(decay, prompt_tokens, count), 1e-300)
        needed = uniforms(self.seed, "acceptance", request, count) / fade
        return leading_runs(needed, np.ones(self.max_depth), output_tokens)

    def _claim(self, row: Row, run: Runs, request: int, prompt_tokens: int) -> Claimed:
        if self.claims is None:
            return _recorded(row, len(run), self.max_depth)
        count = len(run) + self.max_depth
        fade = ahead(decay_factor(self.decay, prompt_tokens, count), len(run), self.max_depth)
        return self.claims.draw(request, self._accepted(run, request, self.claims.base * fade), fade)

    def _accepted(self, run: Runs, request: int, rates: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Whether each draft is accepted, shape (positions, max_depth).

        What a trace cannot know, the fate of drafts behind a rejection, is drawn at ``rates``, so
        that claims behind a rejection give nothing away.
        """
        depths = np.arange(self.max_depth)
        draws = uniforms(self.seed, "acceptance/behind", request, len(run) + self.max_depth)
        behind = ahead(draws, len(run), self.max_depth) < rates
        return np.where(depths < run[:, None], True, (depths > run[:, None]) & behind)

    def expected_tokens_per_round(self, depth: int) -> float:
        """Tokens over rounds when every row is walked once at ``depth``, last rounds untrimmed."""
        return self.mean_tokens(check_depth(depth, self.max_depth))


def _recorded(row: Row, output_tokens: int, max_depth: int) -> Claimed:
    """Tile the recorded claims; 0 for drafts deeper than the recording."""
    if row.confidence is None:
        raise no_confidence()
    claims = np.zeros((output_tokens, max_depth), dtype=np.float32)
    depth = min(max_depth, row.confidence.shape[1])
    claims[:, :depth] = row.confidence[np.arange(output_tokens) % len(row.confidence), :depth]
    return claims


def read_trace(path: FilePath, span_key: str = "acc_eagle") -> list[Row]:
    """Rows of an acceptance trace; ``TraceError`` names the line of the first bad one."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
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


def _parse(line: str, span_key: str) -> Row:
    """One row; ``ValueError`` says what is wrong."""
    record = json.loads(line)
    if not isinstance(record, dict):
        raise ValueError(f'a row is an object like {{"accepted": [2, 0, 1]}}, not {type(record).__name__}')
    accepted = _accepted(record, span_key)
    depth = record.get("depth")
    if depth is not None and (type(depth) is not int or not 1 <= depth <= MAX_DEPTH):
        raise ValueError(f"depth is {depth!r}; it must be a whole number from 1 to {MAX_DEPTH}")
    return Row(accepted, _confidence(record.get("confidence"), len(accepted)), depth)


def _accepted(record: dict[str, object], span_key: str) -> Runs:
    """Read accepted drafts per position from ``accepted`` or from spans that count the bonus token."""
    if "accepted" in record:
        return _whole_numbers("accepted", record["accepted"], 0)
    if span_key not in record:
        raise ValueError(f"the row has neither 'accepted' nor {span_key!r}; it has {', '.join(record)}")
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
    """Read claims of shape (positions, depths); ``ValueError`` unless they are probabilities."""
    if values is None:
        return None
    try:
        claims = np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        claims = np.empty(0)
    if claims.ndim != 2 or len(claims) != positions:
        raise ValueError(f"confidence must be {positions} lists of equal length, one per position")
    if not np.all((claims >= 0) & (claims <= 1)):
        raise ValueError("confidence must hold probabilities from 0 to 1")
    return claims.astype(np.float32)
