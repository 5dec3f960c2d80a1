"""Each policy decides by its published rule."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from sim.cost.step_cost import StepCost
from sim.policies.base import Batch, Outcome, Policy
from sim.policies.config import Bounds
from sim.policies.disable_by_batch_size import DisableByBatchSizeConfig
from sim.policies.goodput import GoodputConfig
from sim.policies.off import Off
from sim.policies.per_batch_size import PerBatchSizeConfig
from sim.policies.registry import POLICIES
from sim.policies.static import StaticConfig
from tests.engine.modelled import linear_profile, view

PROFILE = linear_profile(20.0, 0.5, 1e-4, draft=(2.0, 0.05, 1.5))
COST = StepCost(PROFILE, PROFILE.drafters["d"], 4096)


def batch(sequences: int, scheduled: int | None = None, running: int | None = None) -> Batch:
    """A batch of equal sequences."""
    n = sequences
    counts = {
        "scheduled": n if scheduled is None else scheduled,
        "running": n if running is None else running,
    }
    return view(COST, n, 500, **counts)


def test_every_policy_stands_in_the_registry_under_its_own_name() -> None:
    for name, config in POLICIES.items():
        allowed = config.model_json_schema()["properties"]["policy"]
        assert allowed.get("const", allowed.get("default")) == name


def test_static_never_asks_for_more_than_the_engine_allows() -> None:
    policy = StaticConfig(policy="static", k=5).build(Bounds(3))
    assert policy.draft_depths(batch(4)) == 3


@given(st.integers(1, 200), st.integers(1, 200))
def test_v0_rule_is_off_from_the_threshold_on(running: int, threshold: int) -> None:
    """vLLM V0: no drafts when len(running) >= N, whatever was before."""
    policy = DisableByBatchSizeConfig(policy="disable_by_batch_size", k=4, threshold=threshold)
    assert policy.build(Bounds(7)).draft_depths(batch(1, running=running)) == (
        0 if running >= threshold else 4
    )


@given(st.data())
def test_v1_table_is_read_as_vllm_reads_it(data: st.DataObject) -> None:
    """Inclusive rows; a gap and the tail keep the depth before them; depths are cut to the maximum."""
    rows, first = [], 1
    for _ in range(data.draw(st.integers(1, 4))):
        last = first + data.draw(st.integers(0, 5))
        rows.append((first, last, data.draw(st.integers(0, 9))))
        first = last + 1 + data.draw(st.integers(0, 3))
    policy = PerBatchSizeConfig(policy="per_batch_size", table=tuple(rows)).build(Bounds(6))
    for size in range(1, first + 5):
        expected = min(6, [k for low, _, k in rows if low <= size][-1])
        assert policy.draft_depths(batch(1, scheduled=size)) == expected


def test_v1_table_counts_prefill_chunks_unless_told_otherwise() -> None:
    table = ((1, 4, 3), (5, 99, 0))
    for key, depth in (("scheduled", 0), ("sampling", 3), ("running", 0)):
        config = PerBatchSizeConfig(policy="per_batch_size", table=table, batch_key=key)  # type: ignore[arg-type]
        assert config.build(Bounds(3)).draft_depths(batch(3, scheduled=6, running=8)) == depth


@pytest.mark.parametrize("table", [((2, 4, 3),), ((1, 4, 3), (4, 8, 1)), ((1, 0, 3),), ((1, 4, -1),)])
def test_a_table_that_vllm_would_refuse_is_refused(table: tuple[tuple[int, int, int], ...]) -> None:
    with pytest.raises(ValidationError):
        PerBatchSizeConfig(policy="per_batch_size", table=table)


@given(st.integers(1, 128), st.floats(0.05, 0.95))
def test_goodput_takes_the_best_depth_of_its_own_formula(sequences: int, acceptance: float) -> None:
    """Argmax over k of n (1 - a^(k+1)) / (1 - a) / T(n, k), computed here one by one."""
    policy = GoodputConfig(policy="goodput", k_max=7, start=acceptance, explore_every=0).build(Bounds(7))
    value = []
    for k in range(8):
        n, context = sequences, 500 * sequences
        ms = 20 + 0.5 * n * (k + 1) + 1e-4 * context
        ms += 2.0 + 0.05 * n + 1.5 * (k - 1) if k else 0.0
        value.append((1 - acceptance ** (k + 1)) / (1 - acceptance) / ms)
    chosen = policy.draft_depths(batch(sequences))
    assert isinstance(chosen, int)
    assert value[chosen] == pytest.approx(max(value), rel=1e-12)


def test_goodput_closes_half_the_distance_in_the_known_number_of_steps() -> None:
    """An average of weight w leaves (1 - w)^n of the first error after n equal steps."""
    policy = GoodputConfig(policy="goodput", start=0.7, weight=0.15).build(Bounds(7))
    tried = np.full(8, 4)
    for _ in range(4):
        policy.observe(Outcome(1, np.arange(8), tried, np.zeros(8, dtype=np.int64)))
    assert policy.acceptance == pytest.approx(0.7 * (1 - 0.15) ** 4)


def test_goodput_does_not_count_drafts_behind_a_rejection() -> None:
    """One accepted and one rejected token are a rate of one half, however many drafts followed."""
    policy = GoodputConfig(policy="goodput", start=0.9, weight=1.0).build(Bounds(7))
    policy.observe(Outcome(1, np.arange(1), np.array([7]), np.array([1])))
    assert policy.acceptance == 0.5


def test_goodput_probes_now_and_then_while_it_is_off() -> None:
    """With an estimate too low to draft, one step in ``explore_every`` drafts one token."""
    config = GoodputConfig(policy="goodput", start=0.01, explore_every=10)
    policy: Policy = config.build(Bounds(7))
    depths = [policy.draft_depths(batch(64)) for _ in range(100)]
    assert depths.count(1) == 10
    assert set(depths) == {0, 1}


def test_off_loads_no_drafter() -> None:
    assert Off.drafts is False
