"""AdaServe's two steps against a literal transcription of its Algorithm 2, for chains."""

from __future__ import annotations

from itertools import accumulate
from operator import mul

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.cost.step_cost import StepCost
from sim.policies.adaserve import AdaServe, AdaServeConfig
from sim.policies.base import Claims
from sim.policies.config import Bounds
from tests.engine.modelled import linear_profile
from tests.policies.curves import claims, confidences, curve_cost, decide, seen

ROUND_MS = 10.0
COST = curve_cost([ROUND_MS * 1e6] * 64)


def build(**parameters: object) -> AdaServe:
    """The policy at depth 3."""
    return AdaServeConfig(policy="adaserve", k_max=3, **parameters).build(Bounds(3))


def algorithm_2(confidence: Claims, required: list[float], budget: int, n_max: int) -> list[int]:
    """The paper's Algorithm 2, line by line, for chains: the top of a tree is its next token."""
    n, depth = confidence.shape
    path = [list(accumulate(row, mul)) for row in confidence]
    tree, expected, left = [0] * n, [1.0] * n, budget - n
    for r in sorted(range(n), key=lambda r: -required[r]):
        capped = min(required[r], depth + 1)
        while expected[r] < capped and tree[r] < min(n_max, depth) and left > 0 and path[r][tree[r]] > 0:
            expected[r] += float(path[r][tree[r]])
            tree[r], left = tree[r] + 1, left - 1
    while left > 0:
        tops = [(-path[r][tree[r]], tree[r], r) for r in range(n) if tree[r] < depth and path[r][tree[r]] > 0]
        if not tops:
            break
        tree[min(tops)[2]] += 1
        left -= 1
    return tree


@given(
    confidences(4, 3),
    st.lists(st.tuples(st.integers(1, 6), st.integers(0, 80), st.integers(0, 20)), min_size=4, max_size=4),
    st.integers(1, 20),
    st.integers(0, 4),
)
def test_both_steps_are_the_paper_s(
    confidence: Claims, progress: list[tuple[int, int, int]], budget: int, n_max: int
) -> None:
    """A(r) = (l + t) / limit - o, where l and o leave the first token out and l ends with the step run."""
    output, since_ms, limit_ms = (np.array(column) for column in zip(*progress, strict=True))
    required = [
        (since + ROUND_MS * (2 if tokens > 1 else 1)) / limit - (tokens - 1) if limit else 0.0
        for tokens, since, limit in progress
    ]
    chosen = decide(
        build(budget=budget, n_max=n_max),
        COST,
        confidence,
        output_tokens=output,
        since_first_ns=since_ms * 10**6,
        tpot_limit_ns=limit_ms * 10**6,
    )
    assert chosen.tolist() == algorithm_2(confidence, required, budget, n_max)


def test_a_request_behind_its_limit_is_served_before_a_likelier_one() -> None:
    """Two drafts to spend: to the likeliest, unless the other one is late."""
    confidence = claims([[0.9, 0.9, 0.9], [0.5, 0.5, 0.5]])
    late = {"output_tokens": np.array([5, 5]), "since_first_ns": np.array([1, 1]) * 10**8}
    for limit_ms, depths in ((0, [2, 0]), (20, [0, 2])):
        given_ = late | {"tpot_limit_ns": np.array([0, limit_ms]) * 10**6}
        assert decide(build(budget=4), COST, confidence, **given_).tolist() == depths


@pytest.mark.parametrize(("output", "limit_ms", "depths"), [(1, 11, [1, 0]), (2, 8, [0, 1])])
def test_the_step_that_emitted_the_first_token_is_not_waited_for(
    output: int, limit_ms: int, depths: list[int]
) -> None:
    """Rounds of 10 ms: after one, a token keeps 11 ms; after two, 8 ms ask for half a token more than one."""
    late = {"output_tokens": np.array([9, output]), "since_first_ns": np.array([0, 0])}
    limit = {"tpot_limit_ns": np.array([0, limit_ms]) * 10**6}
    confidence = claims([[0.9, 0, 0], [0.5, 0, 0]])
    assert decide(build(budget=3), COST, confidence, **late, **limit).tolist() == depths


@pytest.mark.parametrize(("sequences", "depth"), [(1, 3), (4, 3), (5, 2), (7, 1), (8, 1), (30, 1)])
def test_the_depth_is_an_even_share_of_the_budget_within_bounds(sequences: int, depth: int) -> None:
    """Equation 8 with c1 = 0: 16 // n - 1 within 1 and 3."""
    assert build(budget=16, k_min=1).draft_depths(seen(COST, sequences)) == depth


def test_the_budget_is_the_largest_step_within_the_stretch() -> None:
    """20 ms + 0.5 ms per token within twice what one token takes: 41 ms, 42 tokens."""
    model = linear_profile(20.0, 0.5)
    cost = StepCost(model, model.drafters["d"], 64)
    assert build(profile_context=0)._budget(cost) == 42


def test_nothing_to_decide_is_no_error() -> None:
    assert decide(build(), COST, np.zeros((0, 3), dtype=np.float32)).tolist() == []
    none = AdaServeConfig(policy="adaserve").build(Bounds(0))
    assert decide(none, COST, claims([[0], [0]])).tolist() == [0, 0]
