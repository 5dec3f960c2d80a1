"""Recorded acceptance (docs/acceptance.md) as evidence, and how good its recorded claims are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sim.acceptance.build import build_process
from sim.acceptance.config import TraceAcceptance
from sim.acceptance.fit.evidence import Evidence, Quality, Request
from sim.acceptance.paths import Runs
from sim.acceptance.quality import auc, calibrating_temperature, ece
from sim.acceptance.survey import rounds
from sim.acceptance.trace import ChanceRow, Row, by_start, read_trace
from sim.errors import InputError

DEEPEST = 16
"""Recordings that state no depth are looked at down to this one."""

MOST_POSITIONS = 2000
"""Of one request: a few that go round in circles for ever must not drown the rest."""

_DEPTHS = (1, 2, 3, 5, 7, 10, DEEPEST)
_SEED = -3  # no run has it: recorded chances become runs by luck of their own


def read_recording(file: str, depth: int | None, span_key: str = "acc_eagle") -> Evidence:
    """Runs at every output position; recorded chances are drawn once."""
    rows = read_trace(Path(file), span_key)
    stated = [row.depth for row in rows if row.depth is not None]
    deepest = min([depth or DEEPEST, DEEPEST, *stated])
    config = TraceAcceptance(process="trace", path=file, assign="in_order", span_key=span_key)
    process = build_process(config, _SEED, deepest, Path)
    runs = [process.path(i, 1, row.positions).run for i, row in enumerate(rows)]
    longest = max(int(run.max()) for run in runs)
    notes = _long(runs)
    endless = all(isinstance(row, ChanceRow) and row.depth is None for row in rows)
    if not (stated or endless or depth):
        deepest = max(1, min(deepest, longest))
        notes += (f"No row states its depth; taken to be {deepest}, the longest run looked for.",)
    return Evidence(
        "trace",
        runs=tuple(run[:MOST_POSITIONS] for run in runs),
        recorded_depth=deepest,
        depth_in_rows=bool(stated) or endless,
        path=file,
        quality=recorded_quality(rows, runs, deepest),
        notes=notes,
    )


def _long(runs: Sequence[Runs]) -> tuple[str, ...]:
    """A note where requests were cut."""
    tokens = sum(len(run) for run in runs)
    long = [len(run) for run in runs if len(run) > MOST_POSITIONS]
    if not long:
        return ()
    share = f"{len(long)} of {len(runs)} requests are longer than {MOST_POSITIONS:,} tokens"
    return (f"{share} and looked at up to there; they hold {sum(long) / tokens:.0%} of all tokens.",)


def depths_of(recorded_depth: int) -> tuple[int, ...]:
    """Depths at which a recording is walked, rising."""
    return (*(depth for depth in _DEPTHS if depth < recorded_depth), recorded_depth)


def walked(run: Runs, depth: int) -> Request:
    """A recorded request as the rounds of a generation at one depth."""
    accepted = rounds(run, depth)
    return Request(depth, len(accepted), sum(accepted), tuple((depth, a) for a in accepted), in_order=True)


def recorded_quality(rows: Sequence[Row], runs: Sequence[Runs], depth: int) -> Quality | None:
    """Quality of the recorded claims at all depths together; ``None`` without claims or outcomes.

    Over drafts whose predecessors were accepted, from every output position.
    """
    claims, passed = [], []
    for row, run in zip(rows, runs, strict=True):
        if row.confidence is not None:
            stated = by_start(row.confidence, len(run), depth)
            counts = (np.arange(depth) <= run[:, None]) & (stated > 0)
            claims.append(stated[counts])
            passed.append((np.arange(depth) < run[:, None])[counts])
    if not claims:
        return None
    all_claims, outcomes = np.concatenate(claims), np.concatenate(passed)
    try:
        ranking = auc(all_claims, outcomes)
    except InputError:
        return None
    return Quality(ranking, ece(all_claims, outcomes), calibrating_temperature(all_claims, outcomes) > 1)
