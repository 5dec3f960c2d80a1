"""Requests drawn together are the requests drawn one by one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.acceptance import blocks
from sim.acceptance.blocks import draw_block
from sim.acceptance.config import TraceAcceptance
from sim.streams import stream_key, uniforms, uniforms_of
from tests.acceptance.helpers import build
from tests.acceptance.test_laws import CONFIGS

ASKED = st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 400), st.integers(1, 60)), min_size=1)
RECORDED = Path(__file__).resolve().parents[2] / "scenarios" / "acceptance" / "byte-pair-greedy.jsonl.gz"


@given(st.integers(0, 2**63), st.integers(0, 10**9), st.integers(0, 40))
def test_a_stream_is_philox_under_its_key(seed: int, index: int, count: int) -> None:
    """Draws are raw Philox output of the named key, the upper 53 bits of each, centred."""
    raw = np.random.Philox(key=stream_key(seed, "luck", index)).random_raw(count)
    expected = [((int(word) >> 11) + 0.5) * 2.0**-53 for word in raw]
    assert uniforms(seed, "luck", index, count).tolist() == expected


@given(st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 40))))
def test_streams_drawn_together_are_the_streams_themselves(asked: list[tuple[int, int]]) -> None:
    """Several indices in one call, in any order, repeated or empty."""
    counts = np.array([count for _, count in asked], dtype=np.int64)
    together = uniforms_of(5, "luck", [index for index, _ in asked], counts).tolist()
    assert together == [u for index, count in asked for u in uniforms(5, "luck", index, count).tolist()]


@settings(max_examples=80, deadline=None)
@given(CONFIGS, st.integers(0, 9), ASKED, st.integers(1, 100))
def test_a_block_has_the_runs_of_its_paths(
    config: dict[str, Any], depth: int, asked: list[tuple[int, int, int]], together: int
) -> None:
    """Every process, every decay, blocks cut anywhere: byte for byte what ``path`` gives."""
    process = build(depth, **config)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "_TOGETHER", together)
        block = draw_block([process], *_columns(asked))
    paths = [process.path(*each).run for each in asked]
    assert block.found is None
    assert block.run.tolist() == np.concatenate(paths).tolist()


@pytest.mark.parametrize("match", [None, 0.9])
def test_classes_keep_the_order_of_requests(match: float | None) -> None:
    """Each request has its class's process, with its matches where that one looks them up."""
    recorded = TraceAcceptance(process="trace", path=str(RECORDED)).model_dump()
    iid = [build(3, process="iid", alpha=0.6, match=match), build(3, process="iid", alpha=0.2)]
    processes = [*iid, build(3, **recorded)]
    asked = [(i, 100 + i, 1 + i % 7) for i in range(40)]
    classes = [i * i % 3 for i, _, _ in asked]
    numbers, _, *lengths = _columns(asked)
    block = draw_block(processes, numbers, np.array(classes), *lengths)
    paths = [processes[number].path(*each) for number, each in zip(classes, asked, strict=True)]
    assert block.run.tolist() == np.concatenate([path.run for path in paths]).tolist()
    if match is None:
        assert block.found is None
        return
    found = [np.ones(len(p.run), dtype=np.bool_) if p.found is None else p.found for p in paths]
    assert block.found is not None
    assert block.found.tolist() == np.concatenate(found).tolist()


def _columns(asked: list[tuple[int, int, int]]) -> tuple[Any, Any, Any, Any]:
    numbers, prompts, outputs = np.array(asked, dtype=np.int64).T
    return numbers, np.zeros_like(numbers), prompts, outputs
