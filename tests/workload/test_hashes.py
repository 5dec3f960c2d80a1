"""Hashed blocks of prompts: read, kept through export and cuts, and refused where they do not fit."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.errors import InputError, TraceError
from sim.trace.requests import hash_ids
from sim.workload.hashes import PromptHashes
from sim.workload.requests import Requests
from sim.workload.traces import read_trace, write_trace
from tests.workload.support import SHARED, build, needs_shared, same

IDS = st.lists(st.lists(st.integers(0, 3), max_size=6), min_size=1, max_size=8)


def shared_blocks(a: list[int] | tuple[int, ...], b: list[int] | tuple[int, ...]) -> int:
    """Leading entries that two lists have in common."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


@given(IDS)
def test_chains_are_equal_exactly_as_long_as_all_hashes_so_far_are(ids: list[list[int]]) -> None:
    """At every place of every pair of prompts."""
    hashes = PromptHashes.of(ids, 16)
    for i, a in enumerate(ids):
        for j, b in enumerate(ids):
            chains = hashes.prompt(i), hashes.prompt(j)
            same_so_far = [x == y for x, y in zip(*chains, strict=False)]
            assert same_so_far == [k < shared_blocks(a, b) for k in range(len(same_so_far))]


def mooncake(path: Path, rows: list[tuple[int, list[int]]]) -> Path:
    """A trace of prompts with their hashes, a second apart."""
    lines = (
        {"timestamp": 1000 * i, "input_length": tokens, "output_length": 5, "hash_ids": ids}
        for i, (tokens, ids) in enumerate(rows)
    )
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def hashes_of(requests: Requests) -> PromptHashes:
    assert requests.hashes is not None
    return requests.hashes


def test_the_tokens_of_a_block_are_mooncakes_or_what_fits(tmp_path: Path) -> None:
    """512 where it fits, the power of two that does otherwise."""
    path = mooncake(tmp_path / "t.jsonl", [(600, [7, 8]), (512, [7])])
    assert hashes_of(read_trace(path, "mooncake")).block == 512
    path = mooncake(tmp_path / "t.jsonl", [(40, [1, 2, 3]), (33, [1, 2, 4])])
    assert hashes_of(read_trace(path, "mooncake")).block == 16


def test_hashes_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    path = mooncake(tmp_path / "t.jsonl", [(40, [1, 2, 3]), (33, [1, 2])])
    with pytest.raises(InputError, match="hash_block"):
        read_trace(path, "mooncake")
    path = mooncake(tmp_path / "t.jsonl", [(40, [1, 2])])
    with pytest.raises(InputError, match="in blocks of 16 it has 3"):
        read_trace(path, "mooncake", hash_block=16)
    path.write_text('{"timestamp": 1, "input_length": 4, "output_length": 5, "hash_ids": ["a"]}\n')
    with pytest.raises(TraceError, match="whole numbers"):
        read_trace(path, "mooncake")


def test_hashes_survive_export_replay_and_cuts(tmp_path: Path) -> None:
    """The replayed trace shares what the first did, and so does its second half alone."""
    rows = [(40, [1, 2, 3]), (33, [1, 2, 4]), (20, [1, 2]), (50, [1, 2, 3, 9])]
    requests = read_trace(mooncake(tmp_path / "m.jsonl", rows), "mooncake")
    write_trace(tmp_path / "l.jsonl", requests)
    again = read_trace(tmp_path / "l.jsonl", "leadline")
    assert same(requests, again)
    first, second = hashes_of(requests), hashes_of(again)
    assert second.block == first.block == 16
    np.testing.assert_array_equal(first.chains, second.chains)
    arrival = {"process": "trace", "format": "mooncake", "path": str(tmp_path / "m.jsonl")}
    cut = hashes_of(build(arrival, num_requests=2))
    assert [cut.prompt(0), cut.prompt(1)] == [first.prompt(0), first.prompt(1)]


@pytest.mark.parametrize("block", [8, 16, 48])
def test_hashes_over_other_blocks_share_no_more(tmp_path: Path, block: int) -> None:
    """Exported in blocks of another size, prompts share whole blocks of what they shared."""
    rows = [(96, [1, 2, 3, 4, 5, 6]), (96, [1, 2, 3, 4, 7, 8]), (96, [1, 2, 3, 4, 5, 6])]
    requests = read_trace(mooncake(tmp_path / "m.jsonl", rows), "mooncake", hash_block=16)
    found = list(hash_ids(requests, block))
    assert shared_blocks(found[0], found[1]) == 64 // block
    assert found[0] == found[2]


@needs_shared
def test_mooncakes_traces_repeat_as_many_blocks_as_published() -> None:
    """With an infinite cache 37 % of the conversation's blocks are hits (workloads' table)."""
    requests = read_trace(SHARED / "mooncake" / "conversation_trace.jsonl", "mooncake")
    hashes = hashes_of(requests)
    assert 1 - len(np.unique(hashes.chains)) / len(hashes.chains) == pytest.approx(0.37, abs=0.01)
