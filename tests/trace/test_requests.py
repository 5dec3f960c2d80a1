"""Exported requests: what readers make of them, and that replaying gives the same run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.errors import InputError
from sim.scenario.model import Scenario
from sim.sweep.prepare import make_run
from sim.trace.requests import DIALECTS, FORMATS, lines, write_requests
from sim.trace.sent import as_sent
from sim.workload.build import build_requests
from sim.workload.requests import Requests
from sim.workload.traces import read_trace
from tests.scenario.support import VALID, read

Gaps = st.lists(st.integers(0, 10**12), min_size=1, max_size=20)


def made(gaps: list[int], prompts: list[int], groups: list[int], prefix: int) -> Requests:
    n = len(gaps)
    return Requests(
        arrival_ns=np.cumsum(np.array(gaps, dtype=np.int64)),
        prompt_tokens=np.resize(np.array(prompts, dtype=np.int64), n),
        output_tokens=np.arange(1, n + 1),
        class_id=np.zeros(n, dtype=np.int64),
        prefix_group=np.resize(np.array(groups, dtype=np.int64), n),
        prefix_tokens=np.full(n, prefix, dtype=np.int64),
    )


any_requests = st.builds(
    made,
    gaps=Gaps,
    prompts=st.lists(st.integers(1, 3000), min_size=1, max_size=20),
    groups=st.lists(st.integers(-1, 3), min_size=1, max_size=20),
    prefix=st.integers(0, 2000),
)


def rows_of(requests: Requests, form: str, block: int = 512) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines(requests, DIALECTS[form], block)]


@given(any_requests, st.sampled_from(["mooncake", "vllm", "guidellm"]))
def test_a_reader_finds_every_gap_and_length_again(
    tmp_path_factory: pytest.TempPathFactory, requests: Requests, form: str
) -> None:
    """To the nanosecond; in every format but our own the earliest request is at 0."""
    path = tmp_path_factory.mktemp("trace") / "t.jsonl"
    write_requests(path, requests, form)
    found = read_trace(path, "guidellm" if form == "guidellm" else "mooncake")
    assert (found.arrival_ns == requests.arrival_ns - requests.arrival_ns[0]).all()
    assert (found.prompt_tokens == requests.prompt_tokens).all()
    assert (found.output_tokens == requests.output_tokens).all()


@given(any_requests)
def test_aiperf_gets_whole_milliseconds_next_to_the_true_time(requests: Requests) -> None:
    stamps = [row["timestamp"] for row in rows_of(requests, "aiperf")]
    assert all(isinstance(stamp, int) for stamp in stamps)
    assert np.abs(np.array(stamps) * 1_000_000 - requests.arrival_ns).max() <= 500_000


@given(any_requests, st.sampled_from([16, 64, 512]))
def test_two_prompts_share_the_whole_blocks_of_what_they_have_in_common(
    requests: Requests, block: int
) -> None:
    hashes = [row["hash_ids"] for row in rows_of(requests, "mooncake", block)]
    for i, first in enumerate(hashes):
        assert len(set(first)) == len(first)
        for j in range(i):
            (group, mine), (other, theirs) = requests.prefix_of(i), requests.prefix_of(j)
            common = min(mine, theirs) // block if group == other >= 0 else 0
            assert first[:common] == hashes[j][:common]
            assert not set(first[common:]) & set(hashes[j][common:])


@given(any_requests, st.sampled_from([16, 512]))
def test_the_three_replayers_build_prompts_of_the_stated_length(requests: Requests, block: int) -> None:
    """Second implementations of how each turns hashes into tokens (sources in sim/trace/requests.py)."""
    for row in rows_of(requests, "mooncake", block):
        length, hashes = row["input_length"], row["hash_ids"]
        left = length
        for _ in hashes:  # vLLM: a block per hash, the last one cut
            left -= min(block, left)
        assert left == 0
        assert 0 < length - (len(hashes) - 1) * block <= block  # AIPerf refuses any other final block
        assert -(-length // block) == len(hashes)  # GuideLLM


def scenario(text: str) -> Scenario:
    return read(text).cells[-1].scenario


OPEN = VALID.replace("num_requests: 500", "num_requests: 40").replace(
    "warmup: {requests: 50}", "warmup: none"
)
CLOSED = OPEN.replace(
    "{process: poisson, request_rate: 4/s}", "{process: closed, max_concurrency: 8}"
).replace("  workload.arrival.request_rate: [2/s, 4/s, 8/s]\n", "")
PREFIXED = OPEN.replace(
    "  num_requests: 40", "  num_requests: 40\n  prefix: {tokens: 256, groups: 3}"
).replace("max_num_seqs: 64}", "max_num_seqs: 64, prefix_caching: true}")


@pytest.mark.parametrize("text", [OPEN, PREFIXED], ids=["plain", "prefixes"])
def test_replaying_an_exported_run_gives_every_request_the_same_times(text: str, tmp_path: Path) -> None:
    first = scenario(text)
    policy = first.policies[2]
    records, setup = make_run(first, policy, 1)
    write_requests(tmp_path / "t.jsonl", setup.requests, "leadline")
    replayed = scenario(_replaying(text, tmp_path))
    again, _ = make_run(replayed, policy, 1)
    for name, column in records.requests.items():
        assert (again.requests[name] == column).all(), name


def _replaying(text: str, folder: Path) -> str:
    """The scenario with the exported trace instead of what it drew."""
    trace = f"{{process: trace, format: leadline, path: {folder / 't.jsonl'}}}"
    gone = (
        "  workload.arrival.request_rate: [2/s, 4/s, 8/s]\n",
        "  lengths: {input: 512, output: 128}\n",
        "  prefix: {tokens: 256, groups: 3}\n",
    )
    for line in gone:
        text = text.replace(line, "")
    for drawn in ("{process: poisson, request_rate: 4/s}", "{process: closed, max_concurrency: 8}"):
        text = text.replace(drawn, trace)
    return text


def test_a_closed_loop_replayed_as_it_was_sent_gives_the_same_times(tmp_path: Path) -> None:
    """The client of a closed loop sends when it may; an open one told those times does the same."""
    closed = scenario(CLOSED)
    policy = closed.policies[2]
    records, setup = make_run(closed, policy, 1)
    write_requests(tmp_path / "t.jsonl", as_sent(setup.requests, records), "leadline")
    again, _ = make_run(scenario(_replaying(CLOSED, tmp_path)), policy, 1)
    for name in ("sent_ns", "scheduled_ns", "first_token_ns", "finish_ns"):
        assert (again.requests[name] == records.requests[name]).all(), name


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_says_how_to_replay_its_file(form: str, tmp_path: Path) -> None:
    for text, bound in ((OPEN, False), (CLOSED, True)):
        drawn = scenario(text)
        requests = build_requests(drawn.workload, 1, drawn.locate)
        command = write_requests(tmp_path / "t.jsonl", requests, form)
        assert "t.jsonl" in command
        assert not bound or form == "leadline" or "8" in command


def test_an_unknown_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="known are mooncake, vllm, aiperf, guidellm, leadline"):
        write_requests(tmp_path / "t.jsonl", made([1], [1], [-1], 0), "weka")
