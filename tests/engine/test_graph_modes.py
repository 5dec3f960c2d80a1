"""Graph modes: what is launched how, what that costs, and what takes a graph away."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.policies.off import Off
from sim.policies.static import Static
from tests.engine.modelled import linear_profile
from tests.engine.steps import Turns, adds_up, extras, run, took


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 99), st.sampled_from([Off, lambda: Static(2), Turns]), st.floats(0, 9), st.floats(0, 9))
def test_eager_is_no_faster_than_pieces_and_pieces_than_one_graph(
    luck: int, policy: Any, piecewise_ms: float, more_ms: float
) -> None:
    """Of equal steps: none >= piecewise >= full_and_piecewise >= full, as the extra costs are."""
    profile = extras(linear_profile(), piecewise_ms + more_ms, piecewise_ms)
    modes = ("none", "piecewise", "full_and_piecewise", "full")
    times = [took(run(policy(), profile, luck=luck, graphs=mode)) for mode in modes]
    for slower, faster in pairwise(times):
        assert np.all(slower >= faster)


@pytest.mark.parametrize(
    ("mode", "decodes", "mixed"),
    [
        ("none", 0, 0),
        ("piecewise", 2, 2),
        ("full", 1, 1),
        ("full_decode_only", 1, 0),
        ("full_and_piecewise", 1, 2),
    ],
)
def test_the_mode_decides_how_prompts_and_decodes_are_launched(mode: str, decodes: int, mixed: int) -> None:
    """Steps of one token per sequence are uniform; those with prompt tokens are mixed."""
    profile = extras(linear_profile(), 8.0, 2.0)
    records = run(Off(), profile, graphs=mode)
    prompts = records.steps["prefill_tokens"] > 0
    assert set(records.steps["graph"][prompts].tolist()) == {mixed}
    assert set(records.steps["graph"][~prompts].tolist()) == {decodes}
    adds_up(records, profile)


def test_beyond_the_largest_size_every_mode_is_eager() -> None:
    """Capture sizes are in tokens; a larger step has no graph at all."""
    for mode in ("piecewise", "full", "full_decode_only", "full_and_piecewise"):
        steps = run(Off(), graphs=mode, capture_sizes=(1, 2, 4)).steps
        assert set(steps["graph"][steps["tokens"] > 4].tolist()) == {0}
        assert 0 not in steps["graph"][(steps["tokens"] <= 4) & (steps["prefill_tokens"] == 0)]


def test_a_policy_that_varies_the_depth_may_lose_full_graphs() -> None:
    """vLLM V1 overrides the mode to piecewise for a depth schedule; a fixed depth keeps its graph."""
    lost: dict[str, Any] = {
        "graphs": "full_and_piecewise",
        "varying_depth_graphs": "piecewise",
        "draft_past_end": True,
    }
    assert set(run(Turns(), **lost).steps["graph"].tolist()) == {2}
    assert 1 in run(Static(3), **lost).steps["graph"]
    assert 1 in run(Turns(), **{**lost, "varying_depth_graphs": "kept"}).steps["graph"]


def test_decode_graphs_of_speculation_hold_whole_sequences() -> None:
    """At depth 3 the sizes 1, 2, 4, 8, 17 become 4, 8 and (beyond 17, so left out) 20."""
    captured: dict[str, Any] = {"capture_multiples": True, "capture_sizes": (1, 2, 4, 8, 17)}
    records = run(Static(3), draft_past_end=True, max_num_seqs=2, **captured)
    padded = records.steps["padded_tokens"][records.steps["graph"] == 1]
    assert set(padded.tolist()) == {4, 8}
    assert np.all(padded >= records.steps["tokens"][records.steps["graph"] == 1])


@settings(max_examples=15, deadline=None)
@given(st.floats(0, 1))
def test_an_idle_rank_takes_the_graph_of_its_share_of_steps(share: float) -> None:
    """Its dummy step makes so many steps eager, evenly spread, and everything else stays."""
    profile = extras(linear_profile(), 4.0, 0.0)
    plain, vetoed = run(Off(), profile), run(Off(), profile, idle_rank_share=share)
    missed = vetoed.steps["graph"] == 0
    assert abs(missed.sum() - share * len(missed)) < 1
    np.testing.assert_array_equal(took(vetoed) - took(plain), np.where(missed, 4_000_000, 0))
    adds_up(vetoed, profile)
