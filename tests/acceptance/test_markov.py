"""Good and bad stretches, and acceptance that falls with the draft's position, do what they say."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.acceptance.build import expected_survival
from sim.acceptance.markov import Markov, stationary, survival_in_walks
from sim.acceptance.spans import Spans
from sim.streams import uniforms
from tests.acceptance.helpers import build, configure, tokens_per_round, walk, z_of_mean

LEAVE = st.floats(0.01, 1)
STRETCHES: dict[str, Any] = {
    "process": "markov",
    "good": 0.9,
    "bad": 0.3,
    "leave_good": 0.06,
    "leave_bad": 0.12,
}


@settings(max_examples=60, deadline=None)
@given(LEAVE, LEAVE, st.integers(1, 80), st.integers(0, 20))
def test_states_are_those_of_a_chain_read_step_by_step(
    leave_good: float, leave_bad: float, count: int, request: int
) -> None:
    """A scalar reading of the stated transitions gives the same states from the same draws."""
    states = Markov(5, 1.0, 0.0, leave_good, leave_bad).states(Spans.one(request, count)).tolist()
    draws = uniforms(5, "acceptance/markov", request, count).tolist()
    good = draws[0] < leave_bad / (leave_good + leave_bad)
    assert states[0] == good
    for draw, state in zip(draws[1:], states[1:], strict=True):
        good = good != (draw < (leave_good if good else leave_bad))
        assert state == good


@pytest.mark.parametrize(("leave_good", "leave_bad"), [(0.05, 0.2), (0.9, 0.95), (1.0, 0.5)])
def test_stretches_have_the_stated_shares_and_lengths(leave_good: float, leave_bad: float) -> None:
    """Good positions are leave_bad / (leave_good + leave_bad) of all, and go on with 1 - leave_good."""
    chain = Markov(1, 1.0, 0.0, leave_good, leave_bad)
    states = np.array([chain.states(Spans.one(request, 60)) for request in range(2000)])
    share = leave_bad / (leave_good + leave_bad)
    for position in (0, 1, 30):
        assert abs(z_of_mean(states[:, position].astype(float), share)) < 4
    ends = states[:, 10] & ~states[:, 11]
    assert abs(z_of_mean(ends.astype(float), share * leave_good)) < 4


@pytest.mark.parametrize("depth", [1, 3, 7])
@pytest.mark.parametrize("factor", [1.0, 0.93])
def test_expected_tokens_of_stretches_match_a_simulation(depth: int, factor: float) -> None:
    """The closed form over the chain of round starts, against walks of long requests."""
    process = build(depth, **STRETCHES, depth_decay=factor)
    mean, error = tokens_per_round(process, depth, requests=400, tokens=600)
    assert abs(mean - process.expected_tokens_per_round(depth)) < 4 * error


@pytest.mark.parametrize(
    "config",
    [
        {"process": "beta", "a": 3.0, "b": 2.0, "depth_decay": 0.9},
        {"process": "latent", "mean": 0.7, "spread": 1.0, "correlation": 0.9, "depth_decay": 0.9},
    ],
    ids=["beta", "latent"],
)
def test_expected_tokens_know_of_a_fall_by_position(config: dict[str, Any]) -> None:
    """Requests or stretches that differ, and a fall by position on top, against walks."""
    process = build(5, **config)
    mean, error = tokens_per_round(process, 5, requests=1000, tokens=150)
    assert process.expected_tokens_per_round(5) == pytest.approx(mean, abs=4 * error + 0.01)


@settings(max_examples=40, deadline=None)
@given(st.floats(0, 1), st.floats(0.3, 1), st.integers(1, 9), st.integers(1, 80))
def test_depth_decay_of_a_constant_rate_is_a_list_of_rates(
    alpha: float, factor: float, depth: int, n: int
) -> None:
    """Conditional rates alpha * factor^j, draw by draw."""
    listed = [alpha * factor**j for j in range(depth)]
    ours = build(depth, process="iid", alpha=alpha, depth_decay=factor).path(2, 1, n).run
    theirs = build(depth, process="per_position", conditional=listed).path(2, 1, n).run
    assert np.array_equal(ours, theirs)


def test_states_that_are_alike_make_no_stretches() -> None:
    """At equal rates every survival is that of iid draws, at every depth."""
    for depth in (1, 4, 9):
        alike = configure(**{**STRETCHES, "good": 0.7, "bad": 0.7})
        assert expected_survival(alike, depth) == pytest.approx(0.7 ** np.arange(1, depth + 1))


def test_deeper_rounds_start_in_worse_places() -> None:
    """The first draft is accepted less often the deeper rounds are, as SpecDecode-Bench's traces show."""
    first = [expected_survival(configure(**STRETCHES), depth)[0] for depth in (1, 2, 3, 5, 7, 10)]
    assert all(after < before for before, after in pairwise(first))


def test_rates_rise_with_position_where_good_stretches_last() -> None:
    """Survivors are in good stretches: conditional acceptance rises towards the good rate."""
    survival = expected_survival(configure(**STRETCHES), 8)
    conditional = survival[1:] / survival[:-1]
    assert np.all(np.diff(conditional) > 0)
    assert conditional[-1] < 0.9


@given(st.lists(st.lists(st.floats(0.01, 1), min_size=4, max_size=4), min_size=4, max_size=4))
def test_the_stationary_law_stays(rows: list[list[float]]) -> None:
    """One step changes nothing, and it sums to one."""
    transition = np.array(rows) / np.sum(rows, axis=1, keepdims=True)
    law = stationary(transition)
    assert law @ transition == pytest.approx(law, abs=1e-9)
    assert law.sum() == pytest.approx(1)


def test_walks_over_three_states_accept_as_a_simulation_does() -> None:
    """Any finite chain, against a token-by-token reading of it (10 s of luck from one stream)."""
    rates = np.array([0.95, 0.6, 0.1])
    transition = np.array([[0.9, 0.1, 0.0], [0.05, 0.9, 0.05], [0.0, 0.3, 0.7]])
    draws = uniforms(9, "test", 0, 120_000).reshape(2, -1)
    state, moves = 0, transition.cumsum(axis=1)
    passes = []
    for accept, move in draws.T:
        passes.append(accept < rates[state])
        state = min(2, int(np.searchsorted(moves[state], move, side="right")))
    ahead = np.lib.stride_tricks.sliding_window_view(np.array(passes), 4)
    run = np.logical_and.accumulate(ahead, axis=1).sum(axis=1)
    rounds = [accepted for _, accepted in walk(run.tolist(), lambda *_: 4)]
    expected = survival_in_walks(rates, transition, np.ones(4))
    for draft, share in enumerate(expected, start=1):
        hits = np.array([float(accepted >= draft) for accepted in rounds])
        # Neighbouring rounds share stretches: batches of 200 are nearly independent.
        batches = hits[: len(hits) // 200 * 200].reshape(-1, 200).mean(axis=1)
        assert abs(z_of_mean(batches, share)) < 4
