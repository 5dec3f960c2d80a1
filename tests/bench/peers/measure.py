"""Runs the sides of a case in turn, again and again, and sums up."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.bench.peers.process import Cost, run_process
from tests.bench.peers.sides import Absent, Case, Facts, Side


def measured(case: Case, places: Mapping[str, Path], count: int, repeats: int) -> dict[str, Any]:
    """One case as plain data: every side's runs, interleaved, after one run of each that does not count.

    ``places`` names folders by what is shown instead of them; ``$WORK`` is the one for files.
    """
    work = places["$WORK"]
    absent = case.peer if isinstance(case.peer, Absent) else None
    here: Sequence[Side] = case.ours if isinstance(case.peer, Absent) else (case.peer, *case.ours)
    warm = {side.name: _once(side, work, count) for side in here}
    runs: dict[str, list[tuple[Cost, Facts]]] = {side.name: [] for side in here}
    for number in range(repeats):
        for side in here:
            print(f"{case.title}: {side.name}, {number + 1} of {repeats}", file=sys.stderr)
            runs[side.name].append(_once(side, work, count))
    rows = [_row(side, runs[side.name], warm[side.name], count) for side in here]
    if absent is None:
        for row in rows[1:]:
            row["times_as_fast"] = _ratios(rows[0], row)
    found = {
        "title": case.title,
        "about": case.about,
        "absent": None if absent is None else absent.reason,
        "sides": rows,
    }
    return dict(_placed(found, places))


def _once(side: Side, work: Path, count: int) -> tuple[Cost, Facts]:
    log = work / "output.log"
    cost = run_process(side.command, side.folder, side.environment, log)
    facts = side.read(log.read_text(errors="replace"))
    if facts.requests not in (None, count):
        raise SystemExit(f"{side.name} answered {facts.requests} of {count} requests; see {log}")
    return cost, facts


def _row(side: Side, runs: list[tuple[Cost, Facts]], warm: tuple[Cost, Facts], count: int) -> dict[str, Any]:
    wall = [cost.wall_s for cost, _ in runs]
    facts = [fact for _, fact in runs]
    loops = [fact.loop_s for fact in facts if fact.loop_s is not None]
    return {
        "name": side.name,
        "version": side.version,
        "command": " ".join((Path(side.command[0]).name, *side.command[1:])),
        "notes": side.notes,
        "scenario": side.scenario,
        "wall_s": wall,
        "cpu_s": [cost.cpu_s for cost, _ in runs],
        "peak_mb": max(cost.peak_mb for cost, _ in runs),
        "requests_per_s": count / statistics.median(wall),
        "first_wall_s": warm[0].wall_s,
        "loop_s": loops,
        "loop_requests_per_s": count / statistics.median(loops) if loops and min(loops) > 0 else None,
        "simulated_s": facts[0].simulated_s,
        "steps": facts[0].steps,
        "more": {key: statistics.median(f.more[key] for f in facts) for key in facts[0].more},
    }


def _ratios(peer: dict[str, Any], own: dict[str, Any]) -> list[float]:
    """Requests per second of ours over the peer's, run by run; loop against loop where both are known."""
    key = "loop_s" if own["loop_s"] else "wall_s"
    pairs = zip(peer[key], own[key], strict=False)
    return [theirs / ours for theirs, ours in pairs]


def _placed(value: Any, places: Mapping[str, Path]) -> Any:
    """The same data without the places of this machine."""
    if isinstance(value, Mapping):
        return {key: _placed(item, places) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_placed(item, places) for item in value]
    if isinstance(value, str):
        for name, place in places.items():
            value = value.replace(str(place), name)
    return value
