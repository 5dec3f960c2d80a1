"""``leadline``: what it buys pays, what it knows is past, and it finds the best fixed depth."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.cost.step_cost import DraftHabits, StepCost
from sim.policies.base import Outcome
from sim.policies.corners import Corners
from sim.policies.leadline import Leadline, LeadlineConfig
from sim.policies.prices import Prices
from sim.policies.static import Static
from sim.policies.yields import PRICES, Calibration, Yields
from tests.engine.modelled import linear_profile, view
from tests.policies.replay import tokens_per_s

PROFILE = linear_profile(20.0, 0.5, 1e-4, draft=(2.0, 0.05, 1.5))
COST = StepCost(PROFILE, PROFILE.drafters["d"], 4096)
GRAPHS = StepCost(
    PROFILE, PROFILE.drafters["d"], 4096, (1, 2, 4, 8, 16, 32, 64, 128), DraftHabits(True, True)
)


def learnt(policy: Leadline, cost: StepCost, rounds: int, seed: int, sequences: int) -> Leadline:
    """The policy after some rounds of random claims and outcomes."""
    random = np.random.default_rng(seed)
    for _ in range(rounds):
        batch = view(cost, sequences, 500)
        claims = random.random((sequences, 7)).astype(np.float32)
        depths = policy.stop_depths(batch, policy.draft_depths(batch), claims)
        verified = np.broadcast_to(policy.verify_depths(batch, depths, claims), sequences).astype(np.int64)
        accepted = random.integers(0, verified + 1)
        policy.observe(Outcome(1, np.arange(sequences), verified, accepted))
    return policy


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 40), st.integers(0, 30), st.integers(0, 2**31), st.sampled_from([COST, GRAPHS]))
def test_whether_a_draft_is_verified_never_depends_on_drafts_after_it(
    sequences: int, rounds: int, seed: int, cost: StepCost
) -> None:
    """Lossless: changing the claims behind draft j of a sequence leaves {depth > j} as it is."""
    random = np.random.default_rng(seed)
    claims = random.random((sequences, 7)).astype(np.float32)
    row, draft = int(random.integers(sequences)), int(random.integers(6))
    other = claims.copy()
    other[row, draft + 1 :] = random.random(6 - draft)
    verified = []
    for shown in (claims, other):
        policy, batch = learnt(Leadline(7), cost, rounds, seed, sequences), view(cost, sequences, 500)
        depths = policy.stop_depths(batch, policy.draft_depths(batch), shown)
        offered = shown * (np.arange(7) < np.reshape(depths, (-1, 1)))
        chosen = np.minimum(policy.verify_depths(batch, depths, offered.astype(np.float32)), depths)
        verified.append(np.broadcast_to(chosen, sequences)[row] > draft)
    assert verified[0] == verified[1]


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 60), st.integers(0, 2**31))
def test_what_is_bought_pays_and_the_first_step_left_out_does_not(corners: int, seed: int) -> None:
    """With usual survivals the chain of steps ends at a total that no further one beats."""
    random = np.random.default_rng(seed)
    totals = np.arange(corners + 1)
    tokens = np.concatenate([[0.0], np.sort(random.random(corners))[::-1].cumsum()])
    slots = np.concatenate([[0.0], random.random(corners).cumsum()])
    usual = np.diff(tokens, append=tokens[-1])
    prices = Prices(
        (1, 0.0, 0, 0), 1, 1, totals.tolist(), tokens.tolist(), slots.tolist(), usual.tolist(), [], []
    )
    worth = tokens - slots
    bought = prices.affordable(usual.astype(np.float32))
    assert worth[bought] >= worth[bought:].max() - 1e-5
    assert worth[bought] >= -1e-5


@given(st.integers(1, 300), st.integers(1, 7))
def test_corners_hold_every_whole_level_and_rise(sequences: int, max_depth: int) -> None:
    totals = Corners(max_depth).of(GRAPHS, sequences).totals
    assert np.all(np.diff(totals) > 0)
    assert set(sequences * np.arange(max_depth + 1)) <= set(totals.tolist())


def test_corners_stand_before_the_steps_of_the_graphs() -> None:
    """With 16 sequences, totals 16, 48 and 112 fill the graphs of 32, 64 and 128 tokens."""
    assert {16, 48, 112} <= set(Corners(7).of(GRAPHS, 16).totals.tolist())


@given(st.floats(0.05, 0.95), st.integers(1, 7))
def test_yields_of_constant_claims_are_the_geometric_law(alpha: float, depth: int) -> None:
    """Claims that always say alpha give alpha + ... + alpha^k tokens from k levels."""
    yields = Yields(7, 0.5, 16)
    survive = np.full((64, 7), alpha, dtype=np.float32).cumprod(axis=1)
    for _ in range(60):
        yields.learn(survive, 7)
    _, value = yields.by_depth()
    assert value[depth, 0] == pytest.approx((alpha ** np.arange(1, depth + 1)).sum(), rel=1e-3)
    assert np.all(np.diff(value, axis=1) <= 0)
    assert len(PRICES) == value.shape[1]


def test_calibration_learns_what_a_claim_is_worth() -> None:
    """Claims of 0.9 that come true half of the time are worth 0.5."""
    random = np.random.default_rng(1)
    calibration = Calibration(prior=20, memory=1e6)
    claims = np.full((100, 1), 0.9)
    for _ in range(200):
        calibration.learn(claims, np.ones(100, dtype=np.int64), random.integers(0, 2, 100))
    assert calibration.apply(claims.astype(np.float32))[0, 0] == pytest.approx(0.5, abs=0.02)


def test_it_is_off_where_no_depth_pays_and_probes_now_and_then() -> None:
    """At 500 sequences a token costs more than it brings; one step in ten drafts one token."""
    profile = linear_profile(1.0, 0.5, 0.0, draft=(2.0, 0.05, 1.5))
    cost = StepCost(profile, profile.drafters["d"], 8192)
    policy = Leadline(7, start=0.3, explore_every=10)
    depths = [policy.draft_depths(view(cost, 500, 100)) for _ in range(100)]
    assert depths[0] == 0
    assert depths.count(1) == 10
    assert set(depths) == {0, 1}


def test_a_switch_waits_until_staying_has_cost_as_much() -> None:
    """With equal losses per step, the number of steps before the change is switch cost over loss."""
    profile = linear_profile(1.0, 0.5, 0.0, draft=(2.0, 0.05, 1.5))
    cost = StepCost(profile, profile.drafters["d"], 8192)
    batch = view(cost, 500, 100)
    dear = Leadline(7, start=0.3, explore_every=0, switch_cost_ns=10**12)
    assert dear.draft_depths(batch) == 7
    plain_ns = float(cost.round_ns(500, 0, 50_000.0))
    assert dear.prices is not None
    assert dear.lost_ns == pytest.approx(500 / dear.prices.drafted - plain_ns, rel=1e-6)
    dear.switch_cost_ns = round(10.5 * dear.lost_ns)
    assert [dear.draft_depths(batch) for _ in range(12)] == [7] * 9 + [0] * 3


@pytest.mark.parametrize("sequences", [1, 16, 96])
def test_it_is_at_least_as_fast_as_the_best_fixed_depth(sequences: int) -> None:
    """Also when claims say nothing (AUC 0.5): within 2 % of the best of eight depths, once it has learnt."""
    best = max(tokens_per_s(Static(k), sequences, auc=0.5) for k in range(8))
    assert tokens_per_s(Leadline(7), sequences, auc=0.5) >= 0.98 * best


@pytest.mark.parametrize("sequences", [16, 96])
def test_good_claims_make_it_faster_than_any_fixed_depth(sequences: int) -> None:
    best = max(tokens_per_s(Static(k), sequences, auc=0.9) for k in range(8))
    assert tokens_per_s(Leadline(7), sequences, auc=0.9) > best


def test_urgent_requests_get_the_drafts() -> None:
    """Two sequences with equal claims: the one behind its TPOT limit is given more."""
    policy = LeadlineConfig(policy="leadline", urgency=3.0).build(_Bounds)
    batch = view(COST, 2, 500)
    batch.output_tokens = np.array([11, 11])
    batch.since_first_ns = np.array([2_000, 100])
    batch.tpot_limit_ns = np.array([50, 50])
    claims = np.full((2, 7), 0.5, dtype=np.float32)
    depths = policy.stop_depths(batch, policy.draft_depths(batch), claims)
    behind, ahead = np.broadcast_to(policy.verify_depths(batch, depths, claims), 2)
    assert behind >= ahead
    assert policy._urgency(batch).tolist() == [3.0, 1.0]


class _Bounds:
    max_depth = 7
