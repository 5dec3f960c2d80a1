"""The bandit keeps to its blocks and bins, finds the best depth, and switches ever more rarely."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from math import ceil, floor, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.policies.bandit import Bandit, BanditConfig, Context
from sim.policies.base import Outcome
from sim.policies.config import Bounds
from sim.streams import uniforms
from tests.policies.uniform import COST, batch, outcome, round_ms


def bandit(seed: int = 0, bound: int = 7) -> Bandit:
    return BanditConfig(policy="bandit", seed=seed).build(Bounds(bound))


def bin_starts(steps: int) -> list[int]:
    """Blocks of 1, 2, 4, ... steps in bins of floor(sqrt(H)), added up until ``steps``."""
    starts, at, length = [], 0, 1
    while at < steps:
        size = floor(sqrt(length))
        for _ in range(ceil(length / size)):
            starts.append(at)
            at += size
        length *= 2
    return [start for start in starts if start < steps]


def stationary(policy: Bandit, steps: int, n: int, alpha: float) -> list[int]:
    """Depths chosen over ``steps`` steps of ``n`` requests of independent acceptance ``alpha``.

    A step takes its target pass for the drafts made before it and the drafting of the next ones.
    """
    draws = uniforms(1, "test/bandit", 0, steps * n * 8).reshape(steps, n, 8)
    runs = (draws < alpha).cumprod(axis=2).sum(axis=2)
    chosen = [0]
    for run in runs:
        k, before = policy.draft_depths(batch(n)), chosen[-1]
        assert isinstance(k, int)
        ns = COST.target_ns(n * (before + 1), n, 500 * n) + COST.drafting_ns(n, n * k, k, 500 * n)
        policy.observe(Outcome(round(float(ns)), np.arange(n), np.full(n, before), np.minimum(run, before)))
        chosen.append(k)
    return chosen[1:]


@pytest.mark.parametrize(("n", "alpha"), [(4, 0.7), (16, 0.7), (64, 0.3)])
def test_the_best_depth_of_a_stationary_load_is_found(n: int, alpha: float) -> None:
    """Most of the second half runs at a depth within 2 % of the best (1 - a^(k+1)) / (1 - a) / T(n, k)."""
    value = [(1 - alpha ** (k + 1)) / (1 - alpha) / round_ms(n, k, 500) for k in range(8)]
    for seed in range(2):
        later = stationary(bandit(seed), 2000, n, alpha)[1000:]
        (depth, times), *_ = Counter(later).most_common(1)
        assert value[depth] >= 0.98 * max(value)
        assert times > 700


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 10**6), st.integers(1, 7))
def test_the_depth_changes_at_the_start_of_a_bin_alone(seed: int, bound: int) -> None:
    """So there are at most as many switches as bins, which grow as the root of the steps."""
    policy = bandit(seed, bound)
    depths = [policy.draft_depths(batch(5)) for _ in range(300)]
    changed = [step for step, (a, b) in enumerate(pairwise(depths), start=1) if a != b]
    assert set(changed) <= set(bin_starts(300))


def test_four_times_the_steps_bring_about_twice_the_switches_at_most() -> None:
    """Bins are sqrt(H) long, so their number, which bounds the switches, doubles."""
    bins = {steps: len(bin_starts(steps)) for steps in (2**10, 2**12, 2**14)}
    assert bins[2**12] / bins[2**10] < 2.3
    assert bins[2**14] / bins[2**12] < 2.2
    switches = sum(a != b for a, b in pairwise(stationary(bandit(), 4096, 4, 0.7)))
    assert switches <= bins[2**12] < 4 * sqrt(4096)


def test_the_bth_bin_of_a_block_explores_with_probability_one_in_b() -> None:
    """One depth is known, so a trial is another one: over 400 streams within 5 standard errors of 1/b."""
    trials = Counter[int]()
    for seed in range(400):
        policy = bandit(seed)
        context = Context(8)
        context.learn(0, 1.0)
        context.block = 7
        for _ in range(8):
            policy._next_bin(context)
            trials[context.bin] += context.depth != 0
    for b, times in trials.items():
        share = 1 / b
        assert abs(times / 400 - share) <= 5 * sqrt(share * (1 - share) / 400)
    assert sorted(trials) == list(range(1, 9))


@given(st.sets(st.integers(0, 7)), st.floats(0, 1, exclude_max=True))
def test_a_trial_takes_an_untried_depth_while_there_is_one(tried: set[int], draw: float) -> None:
    """All depths are then met, each draw equally likely."""
    context = Context(8)
    for depth in tried:
        context.learn(depth, 1.0)
    untried = sorted({*range(8)} - tried) or list(range(8))
    assert context.trial(draw) == untried[int(draw * len(untried))]


def test_drafting_anew_must_pay_for_the_switch() -> None:
    """10 ns a token without drafts, 9 with two: worth a switch that costs 1 ns, not one that costs 4."""
    context = Context(3)
    context.learn(0, 1 / 10)
    context.learn(2, 1 / 9)
    for cost, depth in ((1, 2), (4, 0)):
        policy = BanditConfig.model_validate({"policy": "bandit", "switch_cost": f"{cost}ns"}).build(
            Bounds(2)
        )
        assert context.best(policy.penalty) == depth


def test_a_step_counts_for_the_depth_it_verified_and_for_its_batch() -> None:
    """Choice, next choice, then the outcome of the first one: 3 requests, 5 tokens, 100 ns."""
    policy = bandit()
    first = policy.draft_depths(batch(3))
    policy.observe(outcome([0], depth=0, step_ns=7))
    policy.draft_depths(batch(200))
    policy.observe(outcome([1, 1, 0], depth=4, step_ns=100))
    context = policy.contexts[2]
    assert context.steps.nonzero()[0].tolist() == [first]
    assert context.goodput[first] == pytest.approx(5 / 3 / 100)
    assert not policy.contexts[8].steps.any()


def test_steps_with_prefill_teach_nothing() -> None:
    """Their latency is the prompts', not the depth's."""
    policy = bandit()
    for _ in range(9):
        policy.draft_depths(batch(3))
        policy.observe(outcome([1, 1, 0], depth=4, prefill_tokens=500))
    assert not policy.contexts[2].steps.any()


def test_the_seed_decides_the_order_of_the_trials() -> None:
    runs = [stationary(bandit(seed), 60, 4, 0.7) for seed in (3, 3, 4)]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]
