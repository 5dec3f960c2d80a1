"""What holds for every policy that chooses one depth for the whole batch."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.policies.config import Bounds, PolicyConfig
from sim.policies.disable_by_batch_size import DisableByBatchSizeConfig
from sim.policies.draft_len_schedule import DraftLenScheduleConfig
from sim.policies.mlc_auto import MlcAutoConfig
from sim.policies.per_batch_and_context import PerBatchAndContextConfig
from sim.policies.registry import POLICIES
from tests.policies.uniform import batch, drive

GRID = ((1, 8, 1, 600, 6), (1, 8, 601, 4096, 9), (12, 99, 1, 600, 0), (12, 99, 601, 4096, 3))
CONFIGS: list[PolicyConfig] = [
    PerBatchAndContextConfig(policy="per_batch_and_context", table=GRID),
    DraftLenScheduleConfig(policy="draft_len_schedule", schedule={4: 9, 8: 2, 32: 1}),
    DraftLenScheduleConfig(
        policy="draft_len_schedule", k=5, acceptance_rate_threshold=0.4, acceptance_rate_window_size=3
    ),
    MlcAutoConfig(policy="mlc_auto", max_num_sequence=64),
    *(
        POLICIES[name].model_validate({"policy": name})
        for name in ("sglang_ema", "sglang_throughput_aware", "batch_profile", "bandit")
    ),
]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.title)
@settings(max_examples=10, deadline=None)
@given(
    st.integers(0, 9),
    st.lists(st.integers(0, 80), min_size=1, max_size=60),
    st.integers(0, 2**32),
)
def test_depths_stay_within_bounds_as_requests_come_and_go(config, bound, sizes, seed) -> None:  # type: ignore[no-untyped-def]
    """Empty batches, a bound of 0 and any acceptance included."""

    random = Random(seed)

    def accepts(step: int, size: int, depth: int) -> list[int]:
        return [random.randint(0, depth) for _ in range(size)]

    depths = drive(config.build(Bounds(bound)), sizes, accepts)
    assert min(depths) >= 0
    assert max(depths) <= min(bound, config.depth)


@pytest.mark.parametrize("config", [*CONFIGS[:2], CONFIGS[3]], ids=lambda config: config.title)
def test_the_linter_is_told_every_batch_size_at_which_the_depth_changes(config: PolicyConfig) -> None:
    policy = config.build(Bounds(64))
    changes = {
        n
        for n in range(2, 120)
        for context in (500, 900)
        if policy.draft_depths(batch(n, context)) != policy.draft_depths(batch(n - 1, context))
    }
    assert changes == set(config.thresholds)  # type: ignore[attr-defined]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.title)
def test_equal_inputs_give_equal_depths(config: PolicyConfig) -> None:
    """No wall clock, no hidden randomness: two instances do the same."""
    sizes = [1 + (7 * step) % 40 for step in range(200)]
    runs = [drive(config.build(Bounds(7)), sizes, lambda step, n, k: [k * step % (k + 1)] * n) for _ in "ab"]
    assert runs[0] == runs[1]


@given(st.floats(0, 1))
def test_a_disabled_step_costs_the_acceptance_that_was_stated(loss: float) -> None:
    """The engine reads it off the policy; unless stated it is nothing."""
    config = {"policy": "disable_by_batch_size", "k": 3, "threshold": 8}
    stated = DisableByBatchSizeConfig.model_validate(config | {"acceptance_loss": loss})
    assert stated.build(Bounds(7)).acceptance_loss == loss
    assert DisableByBatchSizeConfig.model_validate(config).build(Bounds(7)).acceptance_loss == 0
