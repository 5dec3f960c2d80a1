"""A run as a Chrome JSON trace, for ui.perfetto.dev or chrome://tracing.

Format: "Trace Event Format" (Chromium project, the JSON object form). Requests are nestable async
events (``b``/``e``, one id per request: the request, and in it queue, prefill and decode), steps are
complete events (``X``) on one thread per replica, and what a step leaves behind is counters (``C``).
Times are microseconds from the start of the run; three decimals keep every nanosecond.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np

from sim.files import write_whole
from sim.results.run_records import Columns, RunRecords

Event = dict[str, Any]
MAX_EVENTS: Final = 500_000
"""Perfetto's interface stays quick up to about this many events."""

_ENGINE, _CLIENT = 1, 1_000_001
_COUNTERS: Final = {
    "batch": "sequences",
    "waiting": "waiting",
    "depth": "next_depth",
    "KV blocks": "kv_blocks",
}


@dataclass(frozen=True)
class Excerpt:
    """The events of a stretch of a run, and how many requests and steps are among them.

    ``cut_ns`` is when the limit was reached (``None``: everything is there).
    """

    events: tuple[Event, ...]
    requests: int
    steps: int
    cut_ns: int | None


@dataclass(frozen=True)
class _Item:
    """Events that stay together: those of one request, or of one step."""

    start_ns: int
    is_step: bool
    events: list[Event]


def excerpt(
    records: RunRecords, start_ns: int = 0, end_ns: int | None = None, most: int = MAX_EVENTS
) -> Excerpt:
    """What overlaps [start, end), from the front until ``most`` events; requests and steps stay whole."""
    steps, requests = list(_steps(records.steps)), list(_requests(records))
    items = sorted(
        (
            item
            for item in chain(requests, steps)
            if _end(item) > start_ns and (end_ns is None or item.start_ns < end_ns)
        ),
        key=lambda item: item.start_ns,
    )
    events, cut_ns = _metadata(records), None
    counts = {True: 0, False: 0}
    for item in items:
        if len(events) + len(item.events) > most:
            cut_ns = item.start_ns
            break
        events += item.events
        counts[item.is_step] += 1
    return Excerpt(tuple(events), counts[False], counts[True], cut_ns)


def ends_ns(records: RunRecords) -> int:
    """When the run's last step or request ends."""
    ends = (records.steps["end_ns"], records.requests["finish_ns"])
    return max(int(each.max(initial=0)) for each in ends)


def write_perfetto(path: Path, found: Excerpt, about: dict[str, Any]) -> None:
    """Write the trace, one event a line; ``about`` goes into the file as ``otherData``."""
    head = {"displayTimeUnit": "ms", "otherData": about}
    lines = ",\n".join(json.dumps(event, separators=(",", ":")) for event in found.events)
    text = json.dumps(head)[:-1] + ', "traceEvents": [\n' + lines + "\n]}\n"
    write_whole(path, text)


def _us(ns: int) -> float:
    return ns / 1000


def _end(item: _Item) -> int:
    last = item.events[-1] if not item.is_step else item.events[0]
    end_us: float = last["ts"] + last.get("dur", 0)
    return round(end_us * 1000)


def _rows(columns: Columns) -> Iterator[dict[str, int]]:
    names = tuple(columns)
    for row in zip(*(columns[name].tolist() for name in names), strict=True):
        yield dict(zip(names, row, strict=True))


def _requests(records: RunRecords) -> Iterator[_Item]:
    """One item per finished request, inner events between the marks that the engine noted."""
    for origin, row in zip(records.origin_ns.tolist(), _rows(records.requests), strict=True):
        if row["finish_ns"] >= 0:
            yield _Item(origin, False, list(_request(origin, row, records.classes)))


def _request(origin: int, row: dict[str, int], classes: tuple[str, ...]) -> Iterable[Event]:
    common = {"cat": "request", "id": row["request"], "pid": _CLIENT, "tid": 0}
    marks = (origin, row["scheduled_ns"], row["first_token_ns"], row["finish_ns"])
    name = f"request {row['request']}"
    args = {
        "class": classes[row["class_id"]],
        **{key: row[key] for key in ("prompt_tokens", "output_tokens", "rounds", "drafted", "accepted")},
        "preemptions": row["preemptions"],
    }
    yield {"ph": "b", "name": name, "ts": _us(origin), **common, "args": args}
    for phase, (start, end) in zip(("queue", "prefill", "decode"), pairwise(marks), strict=True):
        yield {"ph": "b", "name": phase, "ts": _us(start), **common}
        yield {"ph": "e", "name": phase, "ts": _us(end), **common}
    yield {"ph": "e", "name": name, "ts": _us(row["finish_ns"]), **common}


def _steps(steps: Columns) -> Iterator[_Item]:
    """One item per step, with the counters that it changed; a replica that falls idle counts 0."""
    shown: dict[int, dict[str, int]] = {}
    for row, idle in zip(_rows(steps), _idle_after(steps), strict=True):
        replica = row.get("replica", 0)
        values = {name: row[column] for name, column in _COUNTERS.items()}
        events = [_step(row, replica), *_counters(row["start_ns"], replica, values, shown)]
        if idle:
            nothing = dict.fromkeys(("batch", "waiting"), 0)
            events += _counters(row["end_ns"], replica, nothing, shown)
        yield _Item(row["start_ns"], True, events)


def _idle_after(steps: Columns) -> list[bool]:
    """Whether no step of the same replica begins where this one ends."""
    starts, ends = steps["start_ns"], steps["end_ns"]
    replica = steps.get("replica", np.zeros_like(starts))
    begun = set(zip(replica.tolist(), starts.tolist(), strict=True))
    return [pair not in begun for pair in zip(replica.tolist(), ends.tolist(), strict=True)]


def _step(row: dict[str, int], replica: int) -> Event:
    name = "decode" if not row["prefill_tokens"] else "prefill + decode" if row["decodes"] else "prefill"
    counts = ("sequences", "tokens", "prefill_tokens", "context_tokens", "depth", "drafted", "accepted")
    times = {f"{part}_ms": row[f"{part}_ns"] / 1e6 for part in ("verify", "accept", "draft", "host")}
    return {
        "ph": "X",
        "name": name,
        "cat": "step",
        "pid": _ENGINE + replica,
        "tid": 0,
        "ts": _us(row["start_ns"]),
        "dur": _us(row["end_ns"] - row["start_ns"]),
        "args": {name: row[name] for name in (*counts, "emitted", "preempted")} | times,
    }


def _counters(
    time_ns: int, replica: int, values: dict[str, int], shown: dict[int, dict[str, int]]
) -> Iterator[Event]:
    """A counter event for every value that is not the one last shown."""
    before = shown.setdefault(replica, {})
    for name, value in values.items():
        if before.get(name) != value:
            before[name] = value
            pid = _ENGINE + replica
            yield {"ph": "C", "name": name, "pid": pid, "tid": 0, "ts": _us(time_ns), "args": {name: value}}


def _metadata(records: RunRecords) -> list[Event]:
    """Names of the processes: one per replica, and one for the requests."""
    replicas = np.unique(records.steps.get("replica", np.zeros(1, dtype=np.int64))).tolist()
    names = {_CLIENT: "requests", **{_ENGINE + i: f"replica {i}" for i in replicas}}
    processes = [
        {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "ts": 0, "args": {"name": name}}
        for pid, name in names.items()
    ]
    threads = [
        {"ph": "M", "name": "thread_name", "pid": pid, "tid": 0, "ts": 0, "args": {"name": "steps"}}
        for pid in names
        if pid != _CLIENT
    ]
    return [*processes, *threads]
