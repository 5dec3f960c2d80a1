"""A profile per batch size: the argmax over the stated costs and the stated acceptance."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from sim.cost.step_cost import StepCost
from sim.policies.batch_profile import BatchProfile, BatchProfileConfig
from sim.policies.config import Bounds
from tests.engine.modelled import linear_profile, view
from tests.policies.uniform import batch, round_ms


def profile(bound: int = 64, **options: Any) -> BatchProfile:
    return BatchProfileConfig.model_validate({"policy": "batch_profile"} | options).build(Bounds(bound))


@given(st.integers(1, 300), st.integers(0, 9), st.floats(0.05, 1), st.floats(0.05, 1), st.integers(1, 4000))
def test_the_table_holds_the_argmax_of_tokens_per_time(
    n: int, bound: int, c: float, g: float, context: int
) -> None:
    """(1 + c s^g) / T(n, s) for s = 0..k_max, at the profile's context whatever the batch's own is."""
    value = [1 / round_ms(n, 0, context)]
    value += [(1 + min(c * s**g, s)) / round_ms(n, s, context) for s in range(1, min(bound, 7) + 1)]
    chosen = profile(bound, c=c, g=g, context=context).draft_depths(batch(n, context=17))
    assert isinstance(chosen, int)
    assert value[chosen] == pytest.approx(max(value), rel=1e-12)


@given(st.integers(1, 300), st.floats(0.05, 0.95))
def test_alpha_stands_for_the_geometric_law(n: int, alpha: float) -> None:
    """(1 - a^(s+1)) / (1 - a) tokens from s drafts of acceptance a each."""
    value = [(1 - alpha ** (s + 1)) / (1 - alpha) / round_ms(n, s, 512) for s in range(8)]
    chosen = profile(alpha=alpha).draft_depths(batch(n))
    assert isinstance(chosen, int)
    assert value[chosen] == pytest.approx(max(value), rel=1e-12)


def test_the_best_depth_falls_as_the_batch_grows() -> None:
    """The paper's observation; with these linear costs a request of a full batch drafts nothing."""
    policy = profile()
    depths = [policy.draft_depths(batch(n)) for n in range(1, 400)]
    assert depths == sorted(depths, reverse=True)  # type: ignore[type-var]
    assert (depths[0], depths[-1]) == (7, 0)


def test_a_change_of_costs_makes_a_new_table() -> None:
    """Costs are the run's; a policy that meets others must not answer from the old ones."""
    free = linear_profile(20.0, 0.0, 0.0, draft=(0.0, 0.0, 0.0))
    policy = profile()
    assert policy.draft_depths(batch(300)) == 0
    assert policy.draft_depths(view(StepCost(free, free.drafters["d"], 4096), 300, 500)) == 7


def test_two_laws_at_once_are_refused() -> None:
    with pytest.raises(ValidationError, match="one law"):
        profile(alpha=0.7, c=0.5)
