"""DSpark's scheduler against a literal transcription of its Algorithm 1, and its production variant."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from operator import mul

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from sim.policies.base import Claims
from sim.policies.budget import spend, survival
from sim.policies.config import Bounds
from sim.policies.dspark import DSpark, DSparkConfig
from tests.policies.curves import claims, confidences, curve_cost, decide

Curve = list[float]
ANY = st.lists(st.integers(1, 50).map(float), min_size=16, max_size=16)
STAIRS = st.lists(st.integers(1, 50), min_size=4, max_size=4).map(
    lambda steps: [float(level) for level in accumulate(steps) for _ in range(4)]
)
CONVEX = st.lists(st.integers(0, 20), min_size=15, max_size=15).flatmap(
    lambda rises: st.integers(1, 100).map(
        lambda t0: [float(t) for t in accumulate(sorted(rises), initial=t0)]
    )
)
"""Step times of 1 to 16 tokens; with convex ones Theta has a single peak."""


def algorithm_1(confidence: Claims, steps_per_s: Callable[[int], float]) -> list[int]:
    """The paper's Algorithm 1, line by line."""
    sequences = len(confidence)
    a = [list(accumulate(row, mul)) for row in confidence]
    candidates = [(r, j) for r in range(sequences) for j in range(len(a[r])) if a[r][j] > 0]
    candidates.sort(key=lambda rj: (-a[rj[0]][rj[1]], rj[1], rj[0]))
    lengths, tokens, tau = [0] * sequences, sequences, float(sequences)
    best, selected = sequences * steps_per_s(sequences), [0] * sequences
    for r, j in candidates:
        lengths[r], tokens, tau = j + 1, tokens + 1, tau + float(a[r][j])
        theta = tau * steps_per_s(tokens)
        if theta > best:
            best, selected = theta, list(lengths)
        else:
            break
    return selected


def build(**parameters: object) -> DSpark:
    """The policy at depth 3."""
    return DSparkConfig(policy="dspark", k_max=3, **parameters).build(Bounds(3))


def theta(confidence: Claims, ns: Curve, drafts: int) -> float:
    """Tokens per s with the likeliest ``drafts`` drafts."""
    likeliest = sorted(survival(confidence).ravel().tolist(), reverse=True)
    return (len(confidence) + sum(likeliest[:drafts])) / ns[len(confidence) + drafts - 1]


@given(confidences(4, 3), st.one_of(ANY, STAIRS, CONVEX))
def test_algorithm_1_is_the_paper_s(confidence: Claims, ns: Curve) -> None:
    chosen = decide(build(variant="algorithm_1"), curve_cost(ns), confidence)
    assert chosen.tolist() == algorithm_1(confidence, lambda tokens: 1e9 / ns[tokens - 1])


@given(confidences(4, 3), CONVEX)
def test_stopping_early_loses_nothing_where_theta_has_one_peak(confidence: Claims, ns: Curve) -> None:
    """Concave tokens over convex time have no second peak."""
    drafts = int(decide(build(variant="algorithm_1"), curve_cost(ns), confidence).sum())
    possible = int((survival(confidence) > 0).sum())
    best = max(theta(confidence, ns, m) for m in range(possible + 1))
    assert theta(confidence, ns, drafts) == pytest.approx(best, rel=1e-12)


@given(confidences(4, 3), confidences(4, 3), st.one_of(ANY, STAIRS))
def test_production_takes_its_budget_from_two_steps_ago(old: Claims, new: Claims, ns: Curve) -> None:
    """The best of every number of drafts for the old survivals, spent by the new ones."""
    old, new = np.maximum(old, np.float32(0.01)), np.maximum(new, np.float32(0.01))
    policy, cost = build(variant="production"), curve_cost(ns)
    for shown in (old, new):
        decide(policy, cost, shown)
    chosen = decide(policy, cost, new)
    value = [theta(old, ns, m) for m in range(13)]
    assert value[chosen.sum()] == pytest.approx(max(value), rel=1e-6)
    assert chosen.tolist() == spend(survival(new), int(chosen.sum())).tolist()


def test_production_hopes_for_everything_of_new_requests() -> None:
    """Theta of certain survivors at a constant step time is best with every draft."""
    policy, cost = build(variant="production"), curve_cost([1.0] * 16)
    assert decide(policy, cost, claims([[0.5, 0.5, 0.5]] * 4)).tolist() == [3, 3, 3, 3]


def test_a_step_that_is_paid_for_only_further_on_stops_algorithm_1_alone() -> None:
    """Two tokens cost what eight do: one draft is not worth it, three are."""
    ns = [1.0] + [2.0] * 7
    sure = claims([[0.9, 0.9, 0.9]])
    assert decide(build(variant="algorithm_1"), curve_cost(ns), sure).tolist() == [0]
    assert decide(build(variant="production"), curve_cost(ns), sure).tolist() == [3]


@pytest.mark.parametrize(("gain", "depth"), [(0.0, 1), (0.05, 1), (0.15, 3)])
def test_trimming_has_to_promise_its_gain(gain: float, depth: int) -> None:
    """Certain survivors: 2 tokens in 1 against 4 in 2.2 is 10 % better."""
    policy = build(variant="production", min_gain=gain)
    assert decide(policy, curve_cost([1.0, 1.0, 2.0, 2.2]), claims([[0.9, 0.9, 0.9]])).tolist() == [depth]


@pytest.mark.parametrize("variant", ["algorithm_1", "production"])
def test_the_first_drafts_may_be_verified_in_any_case(variant: str) -> None:
    """Where every token costs as much as any, even a sure draft gains nothing."""
    cost, doubtful = curve_cost(np.arange(1.0, 17)), claims([[0.2, 0.2, 0.2]] * 4)
    assert decide(build(variant=variant), cost, doubtful).tolist() == [0, 0, 0, 0]
    assert decide(build(variant=variant, least=2), cost, doubtful).tolist() == [2, 2, 2, 2]


def test_a_gain_can_only_be_promised_by_the_past() -> None:
    with pytest.raises(ValidationError, match="variant: production"):
        DSparkConfig(policy="dspark", variant="algorithm_1", min_gain=0.04)


@pytest.mark.parametrize("variant", ["algorithm_1", "production"])
def test_nothing_to_decide_is_no_error(variant: str) -> None:
    cost = curve_cost([1.0] * 8)
    assert decide(build(variant=variant), cost, np.zeros((0, 3), dtype=np.float32)).tolist() == []
    none = DSparkConfig(policy="dspark", variant=variant).build(Bounds(0))
    assert decide(none, cost, np.zeros((2, 1), dtype=np.float32)).tolist() == [0, 0]
