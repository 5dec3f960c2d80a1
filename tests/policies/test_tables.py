"""Tables over batch size and context: vLLM's grid, TensorRT-LLM's schedule and gate, MLC-LLM's steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic import ValidationError

from sim.policies.config import Bounds
from sim.policies.draft_len_schedule import DraftLenSchedule, DraftLenScheduleConfig
from sim.policies.mlc_auto import MlcAutoConfig
from sim.policies.per_batch_and_context import PerBatchAndContextConfig
from tests.policies.uniform import batch, outcome

Table = tuple[tuple[int, int, int, int, int], ...]


def grid_policy(table: Table, bound: int = 64, **options: Any) -> Any:
    return PerBatchAndContextConfig(policy="per_batch_and_context", table=table, **options).build(
        Bounds(bound)
    )


@st.composite
def grids(draw: st.DrawFn) -> tuple[list[tuple[int, int]], list[int], dict[tuple[int, int], int]]:
    """Batch ranges with gaps, context ends, and k by (batch range, context range)."""
    batches, first = [], 1
    for _ in range(draw(st.integers(1, 4))):
        last = first + draw(st.integers(0, 4))
        batches.append((first, last))
        first = last + 1 + draw(st.integers(0, 3))
    ends = sorted(draw(st.sets(st.integers(1, 40), min_size=1, max_size=3)))
    cells = {(i, j): draw(st.integers(0, 9)) for i in range(len(batches)) for j in range(len(ends))}
    return batches, ends, cells


@given(grids(), st.randoms(use_true_random=False))
def test_the_grid_is_read_as_the_pull_request_fills_its_dense_table(grid: Any, random: Any) -> None:
    """Size by size: a covered one has its row, any other the one before; the last context has no end."""
    batches, ends, cells = grid
    starts = [1, *(end + 1 for end in ends[:-1])]
    rows = [(*batches[i], starts[j], ends[j], k) for (i, j), k in cells.items()]
    random.shuffle(rows)
    policy = grid_policy(tuple(rows), bound=6)
    row = 0
    for size in range(1, batches[-1][1] + 5):
        row = next((i for i, (first, last) in enumerate(batches) if first <= size <= last), row)
        for context in range(1, 50):
            column = next((j for j, end in enumerate(ends) if context <= end), len(ends) - 1)
            assert policy.draft_depths(batch(3, context, scheduled=size)) == min(6, cells[row, column])


def test_the_schedule_that_was_measured_for_the_pull_request() -> None:
    """PR #48944, arm C': from 129 requests on, no drafts at short contexts and 3 at long ones."""
    table = (
        *((1, 64, 1, 768, 3), (1, 64, 769, 32768, 3)),
        *((65, 128, 1, 768, 1), (65, 128, 769, 32768, 1)),
        *((129, 512, 1, 768, 0), (129, 512, 769, 32768, 3)),
    )
    policy = grid_policy(table)
    asked = {(n, c): policy.draft_depths(batch(n, c)) for n in (32, 100, 256) for c in (400, 900, 99999)}
    assert [asked[256, c] for c in (400, 900, 99999)] == [0, 3, 3]
    assert {asked[100, c] for c in (400, 900)} == {1}
    assert {asked[32, c] for c in (400, 900)} == {3}


@given(st.lists(st.integers(1, 300), min_size=1, max_size=9))
def test_contexts_are_summed_up_as_the_pull_request_does(contexts: list[int]) -> None:
    """Mean rounded down, upper median, or maximum; read off a table whose depth is the context."""
    table = tuple((1, 9, c, c, c - 1) for c in range(1, 301))
    expected = {
        "mean": sum(contexts) // len(contexts),
        "median": sorted(contexts)[len(contexts) // 2],
        "max": max(contexts),
    }
    for key, value in expected.items():
        seen = batch(len(contexts), context_tokens=np.array(contexts))
        assert grid_policy(table, bound=999, context=key).draft_depths(seen) == value - 1


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (((2, 4, 1, 9, 3),), "must start at 1"),
        (((1, 4, 0, 9, 3),), "must start at 1"),
        (((1, 4, 1, 9, 3), (4, 8, 1, 9, 3)), "overlap"),
        (((1, 4, 1, 9, 3), (1, 4, 11, 20, 3)), "gap"),
        (((1, 4, 1, 9, 3), (1, 4, 10, 20, 3), (5, 8, 1, 20, 3)), "no grid"),
        (((1, 4, 1, 9, 3), (1, 4, 1, 9, 2)), "no grid"),
        (((1, 0, 1, 9, 3),), "must not end"),
        (((1, 4, 1, 9, -1),), "0 or more"),
    ],
)
def test_a_grid_that_the_pull_request_would_refuse_is_refused(table: Table, said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        grid_policy(table)


def schedule(**options: Any) -> DraftLenScheduleConfig:
    return DraftLenScheduleConfig.model_validate({"policy": "draft_len_schedule"} | options)


@given(st.dictionaries(st.integers(1, 40), st.integers(0, 8), min_size=1), st.integers(0, 9))
def test_a_schedule_holds_up_to_its_keys(keys: dict[int, int], bound: int) -> None:
    """The smallest key that is not below the batch decides; above the last there is nothing."""
    keys[min(keys)] = max(keys.values())
    policy = schedule(schedule=keys).build(Bounds(bound))
    for size in range(1, 45):
        fitting = [key for key in keys if size <= key]
        expected = keys[min(fitting)] if fitting else 0
        assert policy.draft_depths(batch(2, scheduled=size)) == min(bound, expected)


def test_the_schedule_of_the_documentation() -> None:
    """{4: 4, 8: 2, 32: 1}: 1-4 requests 4 drafts, 5-8 2, 9-32 1, from 33 on none; keys may be text."""
    policy = schedule(schedule={"32": 1, "4": 4, "8": 2}).build(Bounds(64))
    assert [policy.draft_depths(batch(n)) for n in (1, 4, 5, 8, 9, 32, 33, 500)] == [4, 4, 2, 2, 1, 1, 0, 0]


@given(st.integers(1, 60), st.integers(1, 60))
def test_max_concurrency_is_a_schedule_of_one_key(most: int, size: int) -> None:
    policy = schedule(k=3, max_concurrency=most).build(Bounds(64))
    assert policy.draft_depths(batch(size)) == (3 if size <= most else 0)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"k": 2, "schedule": {"4": 2}},
        {"schedule": {"4": 2}, "max_concurrency": 8},
        {"schedule": {"4": 2, "8": 3}},
        {"schedule": {"0": 2}},
        {"schedule": {"4": -1}},
        {"k": 2, "acceptance_rate_threshold": 0.5},
        {"k": 2, "acceptance_rate_window_size": 9},
    ],
)
def test_a_schedule_that_tensorrt_llm_would_refuse_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        schedule(**options)


@given(
    st.lists(st.lists(st.integers(0, 4), max_size=6), max_size=30),
    st.integers(1, 6),
    st.floats(0.001, 0.999),
)
def test_the_gate_shuts_at_a_low_mean_rate_and_stays_shut(
    steps: list[list[int]], window: int, threshold: float
) -> None:
    """Batch-level rates of steps with drafts; the mean of the last ``window`` of them is compared."""
    policy = gated(threshold, window)
    rates: list[float] = []
    shut = False
    for accepted in steps:
        policy.observe(outcome(accepted, depth=4))
        rates += [sum(accepted) / (4 * len(accepted))] if accepted else []
        mean = sum(rates[-window:]) / window
        assume(abs(mean - threshold) > 1e-9)
        shut = shut or (len(rates) >= window and mean < threshold)
        assert policy.draft_depths(batch(3)) == (0 if shut else 4)


def test_the_gate_weighs_steps_alike_and_those_without_drafts_not_at_all() -> None:
    """1 request at 4 of 4 and 100 requests at 1 of 4 average 0.625; pooled they would be 0.26."""
    for threshold, depth in ((0.62, 4), (0.63, 0)):
        policy = gated(threshold, window=2)
        policy.observe(outcome([4], depth=4))
        policy.observe(outcome([0, 0], depth=0))
        assert policy.draft_depths(batch(1)) == 4
        policy.observe(outcome([1] * 100, depth=4))
        assert policy.draft_depths(batch(1)) == depth


def gated(threshold: float, window: int) -> DraftLenSchedule:
    options = {"acceptance_rate_threshold": threshold, "acceptance_rate_window_size": window}
    return schedule(k=4, **options).build(Bounds(64))


@pytest.mark.parametrize("n", [*range(1, 34), 200])
def test_mlc_draws_its_steps_at_ten_twenty_and_thirty(n: int) -> None:
    """auto_spec_decode.cc: below 10 requests 4, below 20 3, below 30 2; 0 if n (k + 1) is too many."""
    length = 0
    if n < 10:
        length = 4
    elif n < 20:
        length = 3
    elif n < 30:
        length = 2
    seen = batch(n, scheduled=n + 50, running=n + 70)
    for most in (None, 1, n * length, n * (length + 1) - 1, n * (length + 1)):
        policy = MlcAutoConfig(policy="mlc_auto", max_num_sequence=most or None).build(Bounds(64))
        fits = not most or n * (length + 1) <= most
        assert policy.draft_depths(seen) == (length if fits else 0)
