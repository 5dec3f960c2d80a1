"""Each claim of the article, held to theory: closed forms, bounds, and the profile's terms."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest

from scenarios.claims.known_rates import KnownRates
from sim.cost.breakdown import breakdown_ns
from sim.cost.step_cost import StepCost
from sim.policies.base import Batch
from tests.claims import theory
from tests.claims.claims import breadth_and_depth, bytes_per_token, explained_ms, flops_per_token, wasted
from tests.claims.measure import (
    cells,
    first_wave,
    full_steps,
    predicted_gain,
    request_sum,
    tpot_ms,
    whole_run_tokens_per_s,
)
from tests.engine.modelled import linear_profile

SIGMAS = 4
UNIFORM = ("off", *(f"static(k={k})" for k in (1, 2, 3, 5)))


@pytest.mark.parametrize("k", [1, 3, 5, 8])
def test_1_speculation_raises_flops_per_token_by_at_least_the_closed_form(k: int) -> None:
    """FLOPs per token grow by (k+1)/E(k) or more, E(k) being estimated from finitely many rounds."""
    name, a = "1-work-per-token", 0.7
    off, steps = full_steps(name, "base", "off"), full_steps(name, "base", f"static(k={k})")
    e = theory.tokens_per_round(a, k)
    luck = SIGMAS * math.sqrt(theory.accepted_variance(a, k) / steps.columns["sequences"].sum()) / e
    ratio = flops_per_token(steps) / flops_per_token(off)
    assert ratio >= (k + 1) / e * (1 - luck)
    assert ratio > 1
    drafter = steps.drafter
    assert drafter is not None
    assert drafter.work is not None
    extra = drafter.work.flops_per_token * (e + k - 1) / steps.profile.target.work.flops_per_token
    assert ratio == pytest.approx((k + 1 + extra) / e, rel=luck + 0.02)  # answers end in mid-round
    assert bytes_per_token(steps) < bytes_per_token(off)


def test_2_one_token_decoding_is_bound_by_memory() -> None:
    """Bytes over bandwidth exceed FLOPs over peak a hundredfold, and the weights' terms dominate."""
    one = full_steps("2-memory-bound", "base", "off")
    read_ms = theory.bandwidth_ms(one.profile, 1, 1, one.context)
    assert read_ms > 100 * theory.compute_ms(one.profile, 1, one.context)
    parts = breakdown_ns(one.columns, one.profile, None)
    weights = parts["verify.linear"] + parts["verify.lm_head"]
    assert weights > 0.8 * sum(parts.values())
    floor_ms = 1e3 * one.profile.target.work.read_bytes / one.profile.device.bandwidth_bytes_per_s
    assert floor_ms <= weights / one.count / 1e6 <= 1.5 * floor_ms


@pytest.mark.parametrize("k", [1, 3, 7])
def test_2_a_step_of_a_few_tokens_takes_within_ten_percent_of_one(k: int) -> None:
    """Far below the ridge, k+1 tokens cost what one does, and no less than their bytes take."""
    one = full_steps("2-memory-bound", "base", "off")
    steps = full_steps("2-memory-bound", "base", f"static(k={k})")
    assert k + 1 < theory.ridge_tokens(steps.profile) / 10
    assert steps.target_ms <= 1.10 * one.target_ms
    assert steps.target_ms == pytest.approx(theory.target_ms(steps.profile, 1, k, steps.context), rel=1e-6)
    assert steps.target_ms >= theory.bandwidth_ms(steps.profile, k + 1, 1, steps.context)


@pytest.mark.parametrize("model", ["hybrid", "dense"])
@pytest.mark.parametrize("n", [2, 4, 8])
def test_3_more_sequences_share_one_reading_of_the_weights(model: str, n: int) -> None:
    """Where the bytes hardly grow, the step stays within 10 % and each token costs 1/n of it."""
    one, more = (full_steps("3-two-sequences", f"{model}, c={c}", "off") for c in (1, n))
    work = one.profile.target.work
    grown = theory.pass_bytes(work, n, n, n * one.context) / theory.pass_bytes(work, 1, 1, one.context)
    assert grown < 1.05
    assert more.step_ms <= 1.10 * one.step_ms
    assert more.step_ms == pytest.approx(theory.target_ms(one.profile, n, 0, more.context), rel=1e-6)


@pytest.mark.parametrize("n", [2, 4, 8])
def test_3_experts_make_breadth_dear_but_each_token_cheaper(n: int) -> None:
    """A mixture of experts reads up to n times the experts, so its step grows, by less than n."""
    one, more = (full_steps("3-two-sequences", f"moe, c={c}", "off") for c in (1, n))
    work = one.profile.target.work
    touched = theory.touched_experts(work, n) / theory.touched_experts(work, 1)
    assert 1.8 < touched < n
    assert 1.10 * one.step_ms < more.step_ms < touched * one.step_ms


def test_4_breadth_and_depth_differ_by_their_sequences_and_kv_alone() -> None:
    """8 x 1 and 1 x 8 cost within 5 %; the terms over sequences and context explain the difference."""
    breadth, depth = breadth_and_depth()
    assert set(breadth.columns["tokens"]) == set(depth.columns["tokens"]) == {8}
    difference = breadth.target_ms - depth.target_ms
    assert 0 < difference < 0.05 * depth.target_ms
    assert difference == pytest.approx(sum(explained_ms(breadth, depth).values()), abs=1e-5)


def test_4_breadth_moves_all_a_little_and_depth_one_far() -> None:
    """Breadth emits one token for each of 8; depth (1-a^8)/(1-a) for one."""
    breadth, depth = breadth_and_depth()
    assert breadth.emitted == 8
    e, rounds = theory.tokens_per_round(0.8, 7), depth.count
    luck = SIGMAS * math.sqrt(theory.accepted_variance(0.8, 7) / rounds)
    accepted = request_sum("4-breadth-or-depth", "c=1", "static(k=7)", "accepted")
    drafted = request_sum("4-breadth-or-depth", "c=1", "static(k=7)", "rounds")
    assert 1 + accepted / drafted == pytest.approx(e, abs=luck)
    assert depth.token_ms < breadth.token_ms / 2
    assert breadth.tokens_per_s > 2 * depth.tokens_per_s


@pytest.mark.parametrize("k", [3, 5])
def test_5_at_high_load_a_fixed_depth_slows_every_request(k: int) -> None:
    """T(256, k)/E(k) exceeds T(256, 0) as the profile says; the luckiest request loses, too."""
    name, policy = "5-fixed-depth-at-load", f"static(k={k})"
    off, steps = full_steps(name, "c=256", "off"), full_steps(name, "c=256", policy)
    assert steps.drafter is not None
    theory_ms = theory.round_ms(steps.profile, steps.drafter, 256, k, 0.6, steps.context)
    factor = theory_ms / theory.tokens_per_round(0.6, k) / theory.target_ms(off.profile, 256, 0, off.context)
    assert factor > 1.2
    assert steps.token_ms / off.token_ms == pytest.approx(factor, rel=0.02)
    assert tpot_ms(name, "c=256", policy).min() > tpot_ms(name, "c=256", "off").max()


@pytest.mark.parametrize("k", [3, 5])
def test_5_the_same_depth_helps_every_request_at_low_load(k: int) -> None:
    """At 8 sequences T(8, k)/E(k) is below T(8, 0), and every request gains."""
    name, policy = "5-fixed-depth-at-load", f"static(k={k})"
    steps = full_steps(name, "c=8", policy)
    assert steps.drafter is not None
    theory_ms = theory.round_ms(steps.profile, steps.drafter, 8, k, 0.6, steps.context)
    assert theory_ms / theory.tokens_per_round(0.6, k) < theory.target_ms(steps.profile, 8, 0, steps.context)
    assert tpot_ms(name, "c=8", policy).max() < tpot_ms(name, "c=8", "off").min()


@pytest.mark.parametrize("k", [1, 3, 7])
def test_6_waste_follows_its_closed_form(k: int) -> None:
    """Rejected / verified is 1 - a(1-a^k)/(k(1-a)), so it grows as acceptance falls."""
    name, found = "6-waste", []
    for label in cells(name):
        a = float(label.removeprefix("alpha="))
        rounds = request_sum(name, label, f"static(k={k})", "rounds")
        luck = SIGMAS * math.sqrt(theory.accepted_variance(a, k) / rounds) / k
        found.append(wasted(name, label, k))
        assert found[-1] == pytest.approx(theory.waste(a, k), abs=luck)
    assert all(later > earlier for earlier, later in pairwise(found))


@pytest.mark.parametrize("preset", ["ideal", "vllm_v1"])
def test_7_below_the_threshold_disabling_changes_nothing(preset: str) -> None:
    """Under 112 requests every step is the fixed depth's."""
    same_steps("7-disable-at-load", f"{preset}, c=8", "disable", "static(k=3)")


def test_7_above_the_threshold_disabling_is_plain_decoding() -> None:
    """With no pass at depth 0, steps are plain decoding's, and faster than the fixed depth's."""
    name, label = "7-disable-at-load", "ideal, c=256"
    same_steps(name, label, "disable", "off")
    assert full_steps(name, label, "off").tokens_per_s > full_steps(name, label, "static(k=3)").tokens_per_s


def test_7_a_loaded_drafter_costs_its_first_pass_when_disabled() -> None:
    """Under vLLM V1's rule the disabled step is longer by the drafter's first pass over the step."""
    name, label = "7-disable-at-load", "vllm_v1, c=256"
    off, disabled = full_steps(name, label, "off"), full_steps(name, label, "disable")
    assert disabled.drafter is not None
    idle_ms = theory.draft_ms(disabled.drafter, 256, 1, 256, off.context)
    assert disabled.step_ms - off.step_ms == pytest.approx(idle_ms, rel=1e-3)
    assert disabled.tokens_per_s > full_steps(name, label, "static(k=3)").tokens_per_s


def same_steps(name: str, label: str, policy: str, other: str) -> None:
    """Two policies made the same full steps, to the nanosecond."""
    a, b = full_steps(name, label, policy), full_steps(name, label, other)
    np.testing.assert_array_equal(a.latency_ns, b.latency_ns)
    np.testing.assert_array_equal(a.columns["emitted"], b.columns["emitted"])


def test_8_the_table_switches_where_theory_does() -> None:
    """E(3) T(n, 0) falls to T(n, 3) within a few sequences of the table's 112."""
    steps = full_steps("8-adapt-to-batch", "c=128", "table")
    assert steps.drafter is not None
    switch = theory.crossover(steps.profile, steps.drafter, 3, 0.6, steps.context, idle=True)
    assert abs(switch - 112) <= 4


@pytest.mark.parametrize("clients", [4, 32, 128, 256])
def test_8_the_table_follows_the_better_fixed_depth(clients: int) -> None:
    """It is the better of both, less the drafter's idle pass where the better one is plain decoding."""
    name, label = "8-adapt-to-batch", f"c={clients}"
    off, static, table = (full_steps(name, label, policy) for policy in ("off", "static(k=3)", "table"))
    assert table.drafter is not None
    idle_ms = theory.draft_ms(table.drafter, clients, 1, clients, off.context)
    plain = off.tokens_per_s * off.step_ms / (off.step_ms + idle_ms)
    assert table.tokens_per_s == pytest.approx(max(plain, static.tokens_per_s), rel=2e-3)
    assert table.tokens_per_s >= 0.96 * max(off.tokens_per_s, static.tokens_per_s)


@pytest.mark.parametrize("clients", [4, 32, 128, 256])
def test_8_goodput_comes_near_the_best_depth_of_each_load(clients: int) -> None:
    """It gets 95 % of the best E(k)/T(n, k), k = 0..3, and 96 % of the better fixed depth."""
    name, label = "8-adapt-to-batch", f"c={clients}"
    off, static, goodput = (full_steps(name, label, policy) for policy in ("off", "static(k=3)", "goodput"))
    assert goodput.drafter is not None
    rounds = (
        theory.round_ms(goodput.profile, goodput.drafter, clients, k, 0.6, goodput.context) for k in range(4)
    )
    best = max(clients * theory.tokens_per_round(0.6, k) / ms for k, ms in enumerate(rounds))
    assert goodput.tokens_per_s >= 0.95 * 1e3 * best
    assert goodput.tokens_per_s >= 0.96 * max(off.tokens_per_s, static.tokens_per_s)


@pytest.mark.parametrize("clients", [64, 128])
def test_9_depth_per_sequence_gains_what_the_marginal_rule_predicts(clients: int) -> None:
    """Same sequences: the gain over the best uniform depth is theory's."""
    name, label = "9-depth-per-sequence", f"c={clients}"
    uniform = [first_wave(name, label, policy).tokens_per_s for policy in UNIFORM]
    own = first_wave(name, label, "per sequence")
    predicted = predicted_gain(name, label)
    assert predicted > 0.1
    assert predicted - 0.06 <= own.tokens_per_s / max(uniform) - 1 <= predicted + 0.02


@pytest.mark.parametrize("clients", [64, 128])
def test_9_over_a_closed_loop_less_can_be_gained(clients: int) -> None:
    """Easy requests leave first, so the loop's best split gains less, and a rule for the step no more."""
    name, label = "9-depth-per-sequence", f"c={clients}"
    uniform = [whole_run_tokens_per_s(name, label, policy) for policy in UNIFORM]
    gain = whole_run_tokens_per_s(name, label, "per sequence") / max(uniform) - 1
    bound = predicted_gain(name, label, closed_loop=True)
    assert bound < predicted_gain(name, label) / 1.5
    assert 0 <= gain <= bound + 0.02


@pytest.mark.parametrize("rates", [(0.9, 0.2), (0.8, 0.5), (0.6, 0.05)])
@pytest.mark.parametrize("per_token_ms", [0.02, 0.1, 0.5])
def test_9_the_policy_admits_a_draft_while_it_is_worth_its_slot(
    rates: tuple[float, float], per_token_ms: float
) -> None:
    """Where a step costs T0 + c x tokens, draft j is taken exactly when a^j > c x tokens per time."""
    cost = StepCost(linear_profile(per_token_ms=per_token_ms, draft=None), None, 512)
    policy = KnownRates(rates)
    requests = np.arange(16)
    easy = requests < 8
    batch = Batch(0, 16, 16, 0, 16, 6, requests, (~easy).astype(np.int64), *2 * [np.full(16, 100)], cost)
    depths = np.asarray(policy.draft_depths(batch))
    emitted = sum(
        theory.tokens_per_round(rates[int(not e)], int(k)) for e, k in zip(easy, depths, strict=True)
    )
    slot = per_token_ms * emitted / (20.0 + per_token_ms * (16 + depths.sum()))
    for e, k in zip(easy, depths.tolist(), strict=True):
        a = rates[int(not e)]
        assert k == 0 or a**k >= slot * (1 - 1e-9)
        assert k == 6 or a ** (k + 1) <= slot * (1 + 1e-9)
