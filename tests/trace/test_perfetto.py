"""The laws of an exported run: intervals close, nest, and say what the records say."""

from __future__ import annotations

import json
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sim.results.run_records import RunRecords
from sim.sweep.prepare import make_run
from sim.trace.perfetto import excerpt, write_perfetto
from tests.results.build import requests, run, steps
from tests.scenario.support import VALID, read

TEXT = VALID.replace("num_requests: 500", "num_requests: 60").replace(
    "warmup: {requests: 50}", "warmup: none"
)


@cache
def recorded() -> RunRecords:
    """A loaded run of a policy that changes depth."""
    cell = read(TEXT).cells[-1]
    return make_run(cell.scenario, cell.scenario.policies[2], 1)[0]


def ns(us: float) -> int:
    return round(us * 1000)


def of(events: tuple[dict[str, Any], ...], phase: str) -> list[dict[str, Any]]:
    return [event for event in events if event["ph"] == phase]


def test_every_begin_has_one_end_of_the_same_name_and_id_and_they_nest() -> None:
    open_by_id = defaultdict(list)
    for event in excerpt(recorded()).events:
        if event["ph"] not in "be":
            continue
        stack = open_by_id[event["cat"], event["id"]]
        if event["ph"] == "b":
            assert not stack or stack[-1]["ts"] <= event["ts"]
            stack.append(event)
        else:
            begun = stack.pop()
            assert begun["name"] == event["name"]
            assert begun["ts"] <= event["ts"]
    assert open_by_id
    assert not any(open_by_id.values())


def test_queue_prefill_and_decode_tile_a_request_from_its_arrival_to_its_answer() -> None:
    records = recorded()
    spans: dict[int, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for event in (*of(excerpt(records).events, "b"), *of(excerpt(records).events, "e")):
        spans[event["id"]][event["name"].split()[0]].append(ns(event["ts"]))
    rows = records.requests
    assert len(spans) == len(rows["request"])
    for i, number in enumerate(rows["request"].tolist()):
        found = spans[number]
        assert found["request"] == [rows["arrival_ns"][i], rows["finish_ns"][i]]
        assert found["queue"] == [rows["arrival_ns"][i], rows["scheduled_ns"][i]]
        assert found["prefill"] == [rows["scheduled_ns"][i], rows["first_token_ns"][i]]
        assert found["decode"] == [rows["first_token_ns"][i], rows["finish_ns"][i]]


def test_there_is_one_complete_event_per_step_to_the_nanosecond() -> None:
    records = recorded()
    found = of(excerpt(records).events, "X")
    assert [ns(e["ts"]) for e in found] == records.steps["start_ns"].tolist()
    assert [ns(e["dur"]) for e in found] == (records.steps["end_ns"] - records.steps["start_ns"]).tolist()
    assert [e["args"]["tokens"] for e in found] == records.steps["tokens"].tolist()


@pytest.mark.parametrize(
    ("counter", "column"),
    [("batch", "sequences"), ("waiting", "waiting"), ("depth", "next_depth"), ("KV blocks", "kv_blocks")],
)
def test_a_counter_holds_the_records_value_at_every_step(counter: str, column: str) -> None:
    records = recorded()
    changes = [e for e in of(excerpt(records).events, "C") if e["name"] == counter]
    at = np.array([ns(e["ts"]) for e in changes])
    values = np.array([e["args"][counter] for e in changes])
    shown = values[np.searchsorted(at, records.steps["start_ns"], side="right") - 1]
    assert shown.tolist() == records.steps[column].tolist()


def test_the_batch_counts_nothing_while_the_replica_is_idle() -> None:
    records = run(requests([0, 50], [10, 60]), steps([0, 50], [10, 60], sequences=[1, 1]))
    changes = [e for e in of(excerpt(records).events, "C") if e["name"] == "batch"]
    assert [(ns(e["ts"]), e["args"]["batch"]) for e in changes] == [(0, 1), (10, 0), (50, 1), (60, 0)]


@pytest.mark.parametrize("most", [100, 250, 1000])
def test_a_limit_is_kept_and_leaves_requests_and_steps_whole(most: int) -> None:
    found = excerpt(recorded(), most=most)
    assert len(found.events) <= most
    assert found.cut_ns is not None
    assert len(of(found.events, "b")) == len(of(found.events, "e")) == 4 * found.requests
    assert len(of(found.events, "X")) == found.steps
    assert all(ns(e["ts"]) <= found.cut_ns for e in (*of(found.events, "X"), *of(found.events, "b"))[:1])


def test_a_window_holds_what_overlaps_it_and_nothing_else() -> None:
    records = recorded()
    start, end = 2_000_000_000, 5_000_000_000
    found = of(excerpt(records, start, end).events, "X")
    inside = (records.steps["end_ns"] > start) & (records.steps["start_ns"] < end)
    assert [ns(e["ts"]) for e in found] == records.steps["start_ns"][inside].tolist()


def test_replicas_are_processes_of_their_own() -> None:
    of_steps = steps([0, 0], [10, 12], sequences=[1, 1]) | {"replica": np.array([0, 1])}
    found = excerpt(run(requests([0, 0], [10, 12]), of_steps))
    names = {e["pid"]: e["args"]["name"] for e in of(found.events, "M") if e["name"] == "process_name"}
    assert [names[e["pid"]] for e in of(found.events, "X")] == ["replica 0", "replica 1"]


def test_the_file_is_json_with_the_keys_of_the_format(tmp_path: Path) -> None:
    """Trace Event Format: ph, ts, pid, tid on every event; dur on X; id and cat on async ones."""
    write_perfetto(tmp_path / "t.json", excerpt(recorded()), {"policy": 'a "quoted" one'})
    data = json.loads((tmp_path / "t.json").read_text(encoding="utf-8"))
    needed = {
        "X": {"dur", "name"},
        "b": {"id", "cat", "name"},
        "e": {"id", "cat", "name"},
        "C": {"args", "name"},
    }
    for event in data["traceEvents"]:
        assert {"ph", "ts", "pid", "tid"} | needed.get(event["ph"], set()) <= set(event)
    assert data["otherData"] == {"policy": 'a "quoted" one'}
    assert [path.name for path in tmp_path.iterdir()] == ["t.json"]
