"""The configuration of trees, and what checks and warnings make of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from sim.cost.step_cost import StepCost
from sim.errors import ScenarioError
from sim.policies.base import Tree
from sim.policies.config import Bounds
from sim.policies.tree import TreeConfig
from sim.scenario.lint import lint
from sim.scenario.load import load_scenario, read_scenario
from sim.sweep.prepare import prepare
from tests.engine.modelled import linear_profile, view

SCENARIO = """\
profile: llama-3.1-8b-h100
drafter: eagle3
acceptance: {{process: iid, alpha: 0.6, sibling: 0.35}}
workload:
  arrival: {{process: closed, max_concurrency: 32}}
  lengths: {{input: 8, output: 8}}
  num_requests: 200
engine: {{max_num_batched_tokens: 256, max_num_seqs: 32}}
policies: [{policy}]
run: {{seeds: 3{run}}}
"""


def scenario(folder: Path, policy: str, run: str = "") -> Path:
    path = folder / "trees.yaml"
    path.write_text(SCENARIO.format(policy=policy, run=run))
    return path


@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 400))
def test_nodes_are_at_least_the_depth_and_at_most_what_is_drafted(width: int, k: int, nodes: int) -> None:
    """The first level has ``width`` candidates, each further one ``width`` squared."""
    drafted = width + (k - 1) * width * width
    given: dict[str, Any] = {"policy": "tree", "width": width, "k": k, "nodes": nodes}
    if k <= nodes <= drafted:
        assert TreeConfig(**given).verified == nodes
    else:
        with pytest.raises(ValidationError):
            TreeConfig(**given)
    assert TreeConfig(policy="tree", width=width, k=k).verified == drafted


def test_a_tree_has_a_depth_for_the_drafter_and_nodes_for_the_engine() -> None:
    config = TreeConfig(policy="tree", width=4, k=3, nodes=21)
    assert (config.depth, config.verified, config.title) == (3, 21, "tree(width=4, k=3, nodes=21)")
    policy = config.build(Bounds(21))
    cost = StepCost(linear_profile(), linear_profile().drafters["d"], 4096)
    assert policy.tree == Tree(4, 3, 21)
    assert policy.draft_depths(view(cost, 4, 100)) == 21
    assert policy.draft_depths(view(cost, 0, 100, request=np.arange(0))) == 21
    assert config.build(Bounds(8)).draft_depths(view(cost, 4, 100)) == 8


def test_the_drafter_limits_the_levels_and_not_the_nodes(tmp_path: Path) -> None:
    """The profile's EAGLE-3 head goes to depth 8; 60 nodes over 5 levels are within it."""
    loaded = load_scenario(scenario(tmp_path, "{policy: tree, width: 8, k: 5, nodes: 60}"))
    setup = prepare(loaded, loaded.policies[0], 0)
    assert setup.max_depth == 60
    assert [process.max_depth for process in setup.processes] == [5]
    with pytest.raises(ScenarioError, match="asks for depth 9, but drafter 'eagle3'"):
        load_scenario(scenario(tmp_path, "{policy: tree, width: 2, k: 9, nodes: 12}"))


def test_a_stated_engine_depth_must_hold_all_nodes(tmp_path: Path) -> None:
    tree = "{policy: tree, width: 4, k: 3, nodes: 21}"
    with pytest.raises(
        ScenarioError, match=r"policies\[0\].nodes: asks for nodes 21, but run.max_depth allows 7"
    ):
        load_scenario(scenario(tmp_path, tree, ", max_depth: 7"))
    loaded = load_scenario(scenario(tmp_path, tree, ", max_depth: 32"))
    assert prepare(loaded, loaded.policies[0], 0).max_depth == 32


def test_the_budget_warning_counts_nodes(tmp_path: Path) -> None:
    """32 sequences of 22 tokens do not fit 256."""
    policies = "{policy: static, k: 3}, {policy: tree, width: 4, k: 3, nodes: 21}"
    warnings = lint(read_scenario(scenario(tmp_path, policies)))
    (budget,) = [str(each) for each in warnings if each.id == "budget-caps-batch"]
    assert "32 sequences of 1 + 21 tokens" in budget
    assert "11 decodes fit" in budget
