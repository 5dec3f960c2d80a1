"""Which drafts a budget buys, and what is remembered of earlier ones."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.cost.step_cost import StepCost
from sim.policies.base import Claims
from sim.policies.budget import Past, Profile, expected_tokens, largest_step, spend, survival
from tests.engine.modelled import linear_profile
from tests.policies.curves import claims, confidences


@given(confidences(3, 3), st.integers(0, 9))
def test_no_other_choice_of_as_many_drafts_is_likelier(confidence: Claims, drafts: int) -> None:
    """All depths that spend the same number, tried one by one (DSpark, section 3.2.2)."""
    survive = survival(confidence)
    chosen = spend(survive, drafts)

    def expected(depths: tuple[int, ...]) -> float:
        return float(sum(survive[r, :k].sum(dtype=np.float64) for r, k in enumerate(depths)))

    rivals = [depths for depths in product(range(4), repeat=3) if sum(depths) <= drafts]
    assert chosen.sum() == min(drafts, (survive > 0).sum())
    assert expected(tuple(chosen)) == pytest.approx(max(map(expected, rivals)))


@given(confidences(3, 3), st.integers(0, 9), st.integers(0, 3))
def test_floors_come_on_top(confidence: Claims, drafts: int, least: int) -> None:
    survive = survival(confidence)
    floor = (survive[:, :least] > 0).sum(axis=1)
    chosen = spend(survive, drafts, least)
    assert (chosen >= floor).all()
    assert (chosen - floor).sum() == min(drafts, (survive[:, least:] > 0).sum())


def test_of_equals_the_shallower_and_then_the_earlier_come_first() -> None:
    survive = survival(claims([[0.5, 1, 1], [0.5, 1, 1], [0.25, 1, 1]]))
    assert [spend(survive, drafts).tolist() for drafts in range(5)] == [
        [0, 0, 0],
        [1, 0, 0],
        [1, 1, 0],
        [2, 1, 0],
        [2, 2, 0],
    ]


@given(confidences(3, 3), st.integers(0, 2))
def test_expected_tokens_count_every_sequence_s_own(confidence: Claims, least: int) -> None:
    """The m-th value is what the depths that ``spend`` chooses for m drafts are worth."""
    survive = survival(confidence)
    for drafts, tokens in enumerate(expected_tokens(survive, least)):
        depths = spend(survive, drafts, least)
        worth = 3 + sum(survive[r, :k].sum(dtype=np.float64) for r, k in enumerate(depths))
        assert tokens == pytest.approx(worth)


@given(st.data(), st.integers(1, 3))
def test_the_past_is_that_of_the_same_request(data: st.DataObject, lag: int) -> None:
    """Against a list for each request; requests come, pause and go."""
    past = Past(2, lag)
    lists: dict[int, list[list[float]]] = {r: [] for r in range(6)}
    for _ in range(data.draw(st.integers(1, 8))):
        requests = data.draw(st.lists(st.integers(0, 5), min_size=1, max_size=4, unique=True))
        survive = survival(data.draw(confidences(len(requests), 2)))
        old = past.exchange(np.array(requests), survive, 2)
        for row, request in enumerate(requests):
            known = lists[request]
            expected = known[-lag] if len(known) >= lag else [1.0, 1.0]
            assert old[row].tolist() == pytest.approx(expected)
            known.append(survive[row].tolist() if survive[row, 0] else [1.0, 1.0])


def test_the_past_of_drafts_not_proposed_counts_for_nothing() -> None:
    past = Past(3, 1)
    old = past.exchange(np.array([4, 7]), survival(claims([[0.5, 0, 0], [0, 0, 0]])), np.array([2, 0]))
    assert old.tolist() == [[1, 1, 0], [0, 0, 0]]


def test_a_profile_prices_tokens_as_full_blocks() -> None:
    """20 ms + 0.5 ms per token + 1 ms per 100 KV tokens, blocks of 4 over 200 tokens: 2 ms each."""
    model = linear_profile(20.0, 0.5, 0.01)
    cost = StepCost(model, model.drafters["d"], 64)
    ms = Profile(3, 200).ns(cost) / 1e6
    assert largest_step(cost) == 64
    assert ms[[1, 4, 5, 64]] == pytest.approx([22.5, 24, 26.5, 84])


@pytest.mark.parametrize("captured", [(), (1, 2, 4, 8)])
def test_the_largest_step_is_what_the_costs_were_made_for(captured: tuple[int, ...]) -> None:
    model = linear_profile()
    assert largest_step(StepCost(model, model.drafters["d"], 100, captured)) == 100
    assert largest_step(StepCost(model, None, 100, captured)) == 100
