"""Host time: in sequence or hidden, for grammars, and for a drafter that has nothing to draft."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.engine.config import EngineConfig
from sim.engine.simulate import Setup, simulate
from sim.policies.off import Off
from sim.policies.static import Static
from tests.engine.modelled import linear_profile, requests
from tests.engine.steps import Turns, adds_up, finish, hosted, run, same, took
from tests.engine.test_laws import iid


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 99), st.sampled_from([Off, lambda: Static(3), Turns]), st.floats(0, 60), st.floats(0, 3)
)
def test_overlap_is_never_slower_and_hides_at_most_the_step_before(
    luck: int, policy: Any, host_ms: float, per_logit_ms: float
) -> None:
    """What is hidden and what shows is the host time of the synchronous engine, step for step."""
    profile = hosted(linear_profile(), host_ms, per_logit_ms)
    plain = run(policy(), profile, luck=luck)
    over = run(policy(), profile, luck=luck, overlap_host=True)
    assert np.all(finish(over) <= finish(plain))
    hidden, shown = over.steps["hidden_ns"], over.steps["host_ns"]
    np.testing.assert_array_equal(hidden + shown, plain.steps["host_ns"])
    device = took(over) - shown
    assert hidden[0] == 0
    np.testing.assert_array_equal(hidden[1:], np.minimum(plain.steps["host_ns"][1:], device[:-1]))
    adds_up(over, profile)


def test_after_an_idle_time_the_host_has_nothing_to_hide_behind() -> None:
    """The first step of every request that comes alone pays its host time in full."""
    profile = hosted(linear_profile(), 5.0)
    records = run(Off(), profile, arrivals=100.0 * np.arange(6), overlap_host=True)
    starts = np.isin(records.steps["start_ns"], records.requests["scheduled_ns"])
    assert starts.sum() == 6
    assert set(records.steps["host_ns"][starts].tolist()) == {5_000_000}
    assert set(records.steps["host_ns"][~starts].tolist()) == {0}


def test_masks_cost_the_host_per_structured_sequence_and_draft() -> None:
    """A structured class pays one mask per sequence that samples and one per draft; others pay nothing."""
    profile = linear_profile()
    cost: dict[str, Any] = {"grammar_overhead": "100us", "grammar_overhead_per_draft": "10us"}
    free = run(Static(3), profile, structured=(False,), **cost)
    assert same(free, run(Static(3), profile))
    paid = run(Static(3), profile, structured=(True,), **cost)
    steps = paid.steps
    sampled = steps["logits"] - steps["drafted"]
    np.testing.assert_array_equal(steps["grammar_ns"], 100_000 * sampled + 10_000 * steps["drafted"])
    assert took(paid).sum() - took(free).sum() == steps["grammar_ns"].sum()
    adds_up(paid, profile)


def test_depth_zero_with_a_drafter_may_cost_more_than_plain_decoding() -> None:
    """Off pays nothing; a policy stuck at 0 pays per decode step and sequence; drafting steps do not."""
    cost: dict[str, Any] = {"depth_zero_overhead": "1ms", "depth_zero_overhead_per_sequence": "50us"}
    profile = linear_profile()
    assert same(run(Off(), profile), run(Off(), profile, **cost))
    plain, idle = run(Static(0), profile), run(Static(0), profile, **cost)
    decodes = plain.steps["decodes"]
    extra = np.where(decodes > 0, 1_000_000 + 50_000 * decodes, 0)
    np.testing.assert_array_equal(took(idle) - took(plain), extra)
    drafting = run(Static(3), profile, draft_past_end=True, **cost).steps
    assert np.all(drafting["depth_zero_ns"][drafting["drafted"] > 0] == 0)
    adds_up(idle, profile)


@pytest.mark.parametrize(
    ("plain", "scheduled"), [(2711.7, 1875.6), (1987.1, 1453.5), (1815.2, 1416.6), (1535.9, 1232.8)]
)
def test_one_cost_of_depth_zero_explains_a_published_loss_at_every_context(
    plain: float, scheduled: float
) -> None:
    """vLLM issue 49986: tok/s of 256 sequences at context 400, 900, 1,900 and 4,000, off and at K = 0.

    The steps in between last 42.1, 47.3, 39.7 and 41.0 ms longer, whatever the context: 0.166 ms a sequence.
    """
    profile = linear_profile(fixed_ms=256e3 / plain, per_token_ms=0.0)
    engine = EngineConfig(preset="ideal", kv_blocks=100_000, depth_zero_overhead_per_sequence="166us")
    setup = Setup(
        requests(np.zeros(256), 4, 40), profile, profile.drafters["d"], engine, (iid(0.7),), max_depth=3
    )
    off, idle = (simulate(setup, policy) for policy in (Off(), Static(0)))
    ratio = finish(off).max() / finish(idle).max()
    assert ratio == pytest.approx(scheduled / plain, abs=0.03)


def test_the_cost_of_depth_zero_counts_beside_sequences_that_have_ended() -> None:
    """A step scheduled ahead computes who ended in the one before; it has no drafts for that."""
    cost: dict[str, Any] = {"depth_zero_overhead": "1ms", "depth_zero_overhead_per_sequence": "100us"}
    steps = run(Static(0), async_scheduling=True, **cost).steps
    decodes = steps["prefill_tokens"] == 0
    assert steps["sequences"].sum() > steps["emitted"].sum()
    np.testing.assert_array_equal(
        steps["depth_zero_ns"][decodes], 1_000_000 + 100_000 * steps["sequences"][decodes]
    )


def test_kv_that_moves_to_or_from_the_host_hides_behind_no_step() -> None:
    """Copies stand before the forward pass, whatever the host prepares meanwhile."""
    scarce: dict[str, Any] = {"kv_blocks": 14, "preemption": "swap", "swap_bandwidth": "1GB/s"}
    plain, over = (run(Off(), overlap_host=overlap, **scarce) for overlap in (False, True))
    assert plain.steps["host_ns"].sum() > 0
    assert over.steps["hidden_ns"].sum() == 0
    np.testing.assert_array_equal(over.steps["end_ns"], plain.steps["end_ns"])
    adds_up(over, linear_profile())
