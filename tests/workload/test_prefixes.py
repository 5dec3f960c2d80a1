"""Shared prefixes: which requests start alike, drawn, exported and replayed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sim.errors import TraceError
from sim.workload.traces import read_trace, write_trace
from tests.workload.support import build, same

POISSON = {"process": "poisson", "request_rate": "5/s"}
LENGTHS = {"input": {"type": "uniform", "min": 10, "max": 90}, "output": 5}


def test_groups_are_equally_likely_and_have_the_stated_tokens() -> None:
    """4,000 requests over four groups: 1,000 each, within four standard deviations."""
    requests = build(POISSON, lengths=LENGTHS, num_requests=4000, prefix={"tokens": 32, "groups": 4})
    assert requests.prefix_group is not None
    assert requests.prefix_tokens is not None
    counts = np.bincount(requests.prefix_group, minlength=4)
    assert counts.tolist() == pytest.approx([1000] * 4, abs=4 * np.sqrt(4000 * 0.25 * 0.75))
    assert set(requests.prefix_tokens.tolist()) == {32}


def test_a_prefix_changes_no_other_draw() -> None:
    """The same requests, with groups on top."""
    plain = build(POISSON, lengths=LENGTHS, num_requests=50)
    assert plain.prefix_group is None
    assert same(plain, build(POISSON, lengths=LENGTHS, num_requests=50, prefix={"tokens": 8}))


def test_a_class_has_groups_of_its_own_or_the_workloads() -> None:
    """Two classes share the workload's two groups; the third has three others."""
    names = ["a", "b", "c"]
    classes = [{"name": name, "share": 1 / 3} for name in names]
    classes[2]["prefix"] = {"tokens": 20, "groups": 3}
    requests = build(
        POISSON, lengths=LENGTHS, num_requests=600, classes=classes, prefix={"tokens": 9, "groups": 2}
    )
    assert requests.prefix_group is not None
    groups = [set(requests.prefix_group[requests.class_id == i].tolist()) for i in range(3)]
    assert groups == [{0, 1}, {0, 1}, {2, 3, 4}]


def test_no_request_shares_more_than_its_prompt() -> None:
    requests = build(POISSON, lengths=LENGTHS, num_requests=100, prefix={"tokens": 50})
    shared = [requests.prefix_of(i)[1] for i in range(100)]
    assert shared == np.minimum(requests.prompt_tokens, 50).tolist()


def test_prefix_groups_survive_export_and_replay(tmp_path: Path) -> None:
    """The groups and tokens of the replayed trace are those of the exported requests."""
    requests = build(POISSON, lengths=LENGTHS, num_requests=60, prefix={"tokens": 50, "groups": 3})
    write_trace(tmp_path / "t.jsonl", requests)
    again = read_trace(tmp_path / "t.jsonl", "leadline")
    assert same(requests, again)
    for name in ("prefix_group", "prefix_tokens"):
        np.testing.assert_array_equal(getattr(requests, name), getattr(again, name))


def test_half_a_prefix_is_a_bad_row(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    row = '{"arrival_ns": 1, "prompt_tokens": 2, "output_tokens": 3, "prefix_group": 0}'
    path.write_text('{"schema": "leadline.trace/1"}\n' + row + "\n")
    with pytest.raises(TraceError, match="prefix_tokens"):
        read_trace(path, "leadline")
