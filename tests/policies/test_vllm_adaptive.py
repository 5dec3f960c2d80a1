"""vLLM's adaptive verification: the tables profiled at start, and the budget made from them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.cost.step_cost import StepCost
from sim.policies.base import Claims
from sim.policies.budget import spend, survival
from sim.policies.config import Bounds
from sim.policies.vllm_adaptive import VllmAdaptive, VllmAdaptiveConfig, sizes_to_profile, stairs
from tests.engine.modelled import linear_profile
from tests.policies.curves import claims, confidences, curve_cost, decide


def build(**parameters: object) -> VllmAdaptive:
    """The policy at depth 3."""
    return VllmAdaptiveConfig(policy="vllm_adaptive", k_max=3, **parameters).build(Bounds(3))


def test_sizes_are_the_captured_ones_and_then_far_apart() -> None:
    """The engine's: every captured size, then 1.5, 2, 4, ... times the largest up to the largest step."""
    model = linear_profile()
    cost = StepCost(model, None, 100, (1, 2, 4, 8, 16))
    assert sizes_to_profile(cost, 100).tolist() == [1, 2, 4, 8, 16, 24, 32, 64, 100]
    assert sizes_to_profile(cost, 20).tolist() == [1, 2, 4, 8, 16, 20]
    assert sizes_to_profile(StepCost(model, None, 5), 5).tolist() == [1, 2, 3, 4, 5]


def table_by_hand(points: dict[int, float], most: int, limit: int) -> list[float]:
    """The engine's table, one entry after the other; every point is raised to those before it."""
    raised = {end: max(ns for size, ns in points.items() if size <= end) for end in points}
    beyond = [size for size in points if size > limit]
    table = []
    for tokens in range(most + 1):
        if tokens <= limit:
            table.append(raised[min(size for size in points if size >= tokens)])
        elif tokens <= beyond[0]:
            table.append(raised[beyond[0]])
        else:
            left = max(size for size in beyond if size < tokens)
            right = min(size for size in beyond if size >= tokens)
            share = (tokens - left) / (right - left)
            table.append(raised[left] + share * (raised[right] - raised[left]))
    return table


@given(st.lists(st.floats(1, 100), min_size=7, max_size=7))
def test_tables_are_stairs_within_graphs_and_lines_beyond(ns: list[float]) -> None:
    """Rising even where the costs do not, and nothing blended across the last captured size."""
    sizes = [1, 2, 4, 8, 12, 16, 20]
    table = stairs(np.array(sizes), np.array(ns), 20, 8)
    assert table.tolist() == pytest.approx(table_by_hand(dict(zip(sizes, ns, strict=True)), 20, 8))
    assert (np.diff(table) >= 0).all()


def test_a_profiled_step_has_a_sequence_per_token_and_a_long_context() -> None:
    """20 ms + 0.5 per token + 0.001 per KV token; 3 tokens are 2 sequences of 1000 KV tokens at most."""
    model = linear_profile(20.0, 0.5, 0.001, draft=(2.0, 0.05, 1.5))
    policy = build(profile_context=1000, profile_sequences=2)
    decide(policy, StepCost(model, model.drafters["d"], 64), claims([[0.5] * 3]))
    assert policy._verify_ns[1:4] / 1e6 == pytest.approx([21.5, 23, 23.5])
    assert policy._draft_ns[1:] / 1e6 == pytest.approx([2.05 + 3, 2.1 + 3])


@given(confidences(3, 3), confidences(3, 3), st.lists(st.integers(1, 9), min_size=20, max_size=20))
def test_the_budget_is_best_for_the_step_before(old: Claims, new: Claims, rises: list[int]) -> None:
    """(n + sum of the B largest) / verify[T + B], every B tried; spent by this step's survivals."""
    old, new = np.maximum(old, np.float32(0.01)), np.maximum(new, np.float32(0.01))
    ns, ahead = np.cumsum(rises).astype(float), 5
    policy, cost = build(), curve_cost(ns)
    decide(policy, cost, old)
    chosen = decide(policy, cost, new, prompt_tokens_ahead=ahead)
    likeliest = sorted(survival(old).ravel().tolist(), reverse=True)
    ratio = [(3 + sum(likeliest[:b])) / ns[3 + ahead + b - 1] for b in range(10)]
    assert ratio[chosen.sum()] == pytest.approx(max(ratio), rel=1e-6)
    assert chosen.tolist() == spend(survival(new), int(chosen.sum())).tolist()


def test_dear_drafting_makes_verification_worth_more() -> None:
    """One of 2 ms verify + 100 ms draft: a second token for 1 ms more is worth it; without, it is not."""
    for draft_ms, depth in ((100.0, 3), (0.0, 0)):
        model = linear_profile(1.0, 1.0, draft=(draft_ms, 0.0, 0.0))
        policy = build(profile_context=0)
        cost = StepCost(model, model.drafters["d"], 64)
        decide(policy, cost, claims([[0.4, 0.9, 0.9]]))
        assert decide(policy, cost, claims([[0.4, 0.9, 0.9]])).tolist() == [depth]


def test_new_requests_are_hoped_for_and_nothing_to_decide_is_no_error() -> None:
    cost = curve_cost([1.0] * 8)
    assert decide(build(), cost, claims([[0.1, 0.1, 0.1]])).tolist() == [3]
    assert decide(build(), cost, np.zeros((0, 3), dtype=np.float32)).tolist() == []
    none = VllmAdaptiveConfig(policy="vllm_adaptive").build(Bounds(0))
    assert decide(none, cost, np.zeros((2, 1), dtype=np.float32)).tolist() == [0, 0]
