"""What the comparison with other simulators stands on: the same work for both, no number of the absent."""

from __future__ import annotations

import csv
import json
import resource
import sys
from decimal import Decimal
from pathlib import Path

import pytest

from sim.workload.traces import read_trace
from tests.bench.peers.cases import cases
from tests.bench.peers.measure import measured
from tests.bench.peers.page import page
from tests.bench.peers.process import run_process
from tests.bench.peers.sides import Absent, Case, Facts, Side
from tests.bench.peers.traffic import (
    LONGEST_TOKENS,
    RATE_PER_S,
    build_traffic,
    write_for_leadline,
    write_for_vidur,
)

LENGTHS = [(374, 44), (5000, 100), (10, 4096), (396, 109), (1, 1)]


@pytest.fixture
def lengths(tmp_path: Path) -> Path:
    """A file of lengths as Vidur ships them."""
    file = tmp_path / "lengths.csv"
    rows = "".join(f"0.0,{prompt},{output}\n" for prompt, output in LENGTHS)
    file.write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n" + rows)
    return file


def test_both_sides_read_the_same_requests(tmp_path: Path, lengths: Path) -> None:
    """To the nanosecond and the token, whatever the form."""
    requests = build_traffic(lengths, 200)
    write_for_vidur(tmp_path / "t.csv", requests)
    write_for_leadline(tmp_path / "t.jsonl", requests)
    ours = read_trace(tmp_path / "t.jsonl", "leadline", None, False)
    with (tmp_path / "t.csv").open(newline="") as file:
        theirs = [
            (
                Decimal(row["arrived_at"]) * 10**9,
                int(row["num_prefill_tokens"]),
                int(row["num_decode_tokens"]),
            )
            for row in csv.DictReader(file)
        ]
    columns = (ours.arrival_ns, ours.prompt_tokens, ours.output_tokens)
    assert theirs == list(zip(*(column.tolist() for column in columns), strict=True))


def test_traffic_is_poisson_within_the_limits(lengths: Path) -> None:
    """Mean gap 1 / rate within four standard errors; prompts are cut, outputs are not."""
    requests = build_traffic(lengths, 4000)
    mean_s = requests.arrival_ns[-1] / 1e9 / 4000
    assert abs(mean_s * RATE_PER_S - 1) < 4 / 4000**0.5
    total = requests.prompt_tokens + requests.output_tokens
    assert total.max() <= LONGEST_TOKENS
    assert requests.output_tokens[:5].tolist() == [44, 100, 4095, 109, 1]
    assert requests.prompt_tokens[:5].tolist() == [374, 3996, 1, 396, 1]


def test_an_absent_peer_is_named_with_the_reason_and_no_number(tmp_path: Path) -> None:
    """An empty folder of peers leaves every peer out."""
    found = list(cases(tmp_path, tmp_path, 10))
    assert len(found) == 3
    assert all(isinstance(case.peer, Absent) for case in found)
    case = Case("Peer", "about", Absent("Peer", "it is not here"), ())
    case_found = measured(case, {"$WORK": tmp_path}, 10, 1)
    shown = page({"machine": "m", "date": "d", "commit": "c", "repeats": 1, "cases": [case_found]})
    assert "Peer was not measured: it is not here." in shown
    assert not [line for line in shown.splitlines() if line.startswith("| Peer")]


def test_a_process_is_charged_for_what_it_and_its_children_use(tmp_path: Path) -> None:
    """Half a second of work in a child, and a hundred megabytes; a child begins as a copy of its parent."""
    work = "import time; b = bytearray(100 << 20)\nwhile time.process_time() < 0.5: pass"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {work!r}], check=True)"
    cost = run_process([sys.executable, "-c", parent], tmp_path, {}, tmp_path / "log")
    assert cost.cpu_s >= 0.5
    assert cost.wall_s >= 0.5
    own_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    assert 100 < cost.peak_mb < max(200, own_mb + 50)


def test_a_side_that_loses_requests_or_fails_is_no_result(tmp_path: Path) -> None:
    """Fewer answers than requests, or an exit code, ends the comparison."""
    side = Side("Peer", "1", (sys.executable, "-c", "pass"), tmp_path, lambda _: Facts(9))
    with pytest.raises(SystemExit, match="answered 9 of 10"):
        measured(Case("Peer", "", side, ()), {"$WORK": tmp_path}, 10, 1)
    with pytest.raises(SystemExit, match="ended with 3"):
        run_process([sys.executable, "-c", "raise SystemExit(3)"], tmp_path, {}, tmp_path / "log")


def test_no_place_of_the_machine_is_told(tmp_path: Path) -> None:
    """Folders stand by their names, in commands, notes and scenarios."""
    code = (sys.executable, "-c", "pass", f"--cache={tmp_path}/peers/cache", f"{tmp_path}/files/a.csv")
    (tmp_path / "files").mkdir()
    scenario = {"path": f"{tmp_path}/files/a.csv"}
    side = Side("Peer", "1", code, tmp_path, lambda _: Facts(10), scenario=scenario)
    places = {"$WORK": tmp_path / "files", "$LEADLINE_PEERS": tmp_path / "peers"}
    found = measured(Case("Peer", "", side, ()), places, 10, 1)
    assert str(tmp_path) not in json.dumps(found)
    assert found["sides"][0]["command"].endswith("--cache=$LEADLINE_PEERS/cache $WORK/a.csv")
    assert found["sides"][0]["scenario"] == {"path": "$WORK/a.csv"}
