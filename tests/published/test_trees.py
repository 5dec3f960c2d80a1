"""SpecDecode-Bench's Fig. 2: breadth against depth over the batch, on Qwen3-8B."""

from __future__ import annotations

import pytest

from calibrate.profile import dump_profile
from sim.acceptance.config import MeanLengthAcceptance
from sim.acceptance.trees import sibling_of, tokens_per_round
from sim.policies.base import Tree
from sim.policies.tree import TreeConfig
from sim.scenario.load import load_scenario
from tests.published.measure import (
    CHAIN,
    SCENARIOS,
    SGLANG,
    TREE_6,
    TREE_21,
    TREE_ARMS,
    TreeArm,
    error,
    tree_ratios,
)
from tests.published.page import tree_orders
from tests.published.test_published import GROUNDTRUTH, needs_tables
from tests.published.tree_engine import profile

pytestmark = pytest.mark.xdist_group("published")  # one process: its runs are cached
DATASETS = ("GSM8K", "CNN/DM", "ShareGPT", "InstructCoder")


def ratio(arm: TreeArm, batch: int) -> float:
    """With composed costs alone."""
    return arm.simulate()[batch].ratio


def test_trees_pay_at_small_batches_only() -> None:
    """Nothing fitted but acceptance: the broadest wins at 1, is last from 16 on and loses from 64 on."""
    assert ratio(TREE_21, 1) > ratio(TREE_6, 1) > ratio(CHAIN, 1) > 1
    assert ratio(TREE_21, 16) < min(ratio(CHAIN, 16), ratio(TREE_6, 16))
    for batch in (64, 128):
        assert ratio(CHAIN, batch) > ratio(TREE_6, batch) > ratio(TREE_21, batch)
        assert ratio(TREE_21, batch) < 1 < ratio(CHAIN, batch)


@needs_tables
@pytest.mark.parametrize(
    ("batch", "composed", "engine"), [(1, True, False), (16, False, True), (64, True, True)]
)
def test_the_order_of_chain_and_trees_is_the_published_one(batch: int, composed: bool, engine: bool) -> None:
    """The two known misses are named: the tree of 6 against the chain, once each way (docs/validation.md)."""
    published, *simulated = tree_orders(GROUNDTRUTH, batch)
    assert [order == published for order in simulated] == [composed, engine]


@needs_tables
@pytest.mark.parametrize("arm", TREE_ARMS, ids=lambda arm: arm.name)
def test_with_the_time_seen_at_batch_1_ratios_to_64_are_within_15_percent(arm: TreeArm) -> None:
    """The suggested mark of this case; 128 is left out, where the published steps did not grow."""
    arms, published = arm.simulate_engine(), tree_ratios(GROUNDTRUTH, arm)
    errors = {batch: error(arms[batch].ratio, published[batch]) for batch in (1, 16, 64)}
    assert {batch: e for batch, e in errors.items() if abs(e) > 0.15} == {}


@needs_tables
@pytest.mark.parametrize("dataset", DATASETS)
def test_published_ratios_fall_alike_from_64_to_128_whatever_the_width(dataset: str) -> None:
    """So the batch of the drafting arms did not grow; twice the batch would part them by a fifth."""
    falls = [r[128] / r[64] for r in (tree_ratios(GROUNDTRUTH, arm, dataset) for arm in TREE_ARMS)]
    assert max(falls) - min(falls) < 0.025
    ours = [ratio(arm, 128) / ratio(arm, 64) for arm in TREE_ARMS]
    assert max(ours) - min(ours) > 0.15


@pytest.mark.parametrize("arm", TREE_ARMS, ids=lambda arm: arm.name)
def test_acceptance_follows_from_the_two_published_lengths(arm: TreeArm) -> None:
    """Chain 2.25 and tree of 21 2.92 give the rate and the sibling rate of every scenario."""
    scenario = load_scenario(SCENARIOS / f"{arm.stem}.yaml")
    acceptance = scenario.acceptance
    assert isinstance(acceptance, MeanLengthAcceptance)
    assert acceptance.tau == CHAIN.tokens
    rates = (acceptance.alpha,) * 3
    sibling = sibling_of(Tree(TREE_21.width, TREE_21.depth, TREE_21.nodes), rates, TREE_21.tokens)
    assert acceptance.sibling == pytest.approx(sibling, abs=5e-5)
    assert tokens_per_round(Tree(2, 3, 6), rates, sibling) == pytest.approx(2.45, abs=0.005)
    policy = scenario.policies[1]
    shape = (policy.width, policy.k, policy.nodes) if isinstance(policy, TreeConfig) else (1, policy.depth, 3)
    assert shape == (arm.width, arm.depth, arm.nodes)


@needs_tables
def test_the_engine_s_profile_is_what_its_command_writes() -> None:
    """Its two estimates come from the ratios at batch 1."""
    shipped = (SCENARIOS / SGLANG).read_text(encoding="utf-8")
    assert shipped == dump_profile(profile(GROUNDTRUTH))
