"""Policies price a round as the engine charges it, whatever the engine does around the step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import simpy

from sim.engine.config import EngineConfig
from sim.engine.simulate import Setup, build_replica, simulate
from sim.policies.base import Policy
from sim.policies.corners import Corners
from sim.policies.off import Off
from sim.policies.static import Static
from sim.policies.times import RoundTimes
from tests.engine.modelled import RecordedAcceptance, linear_profile, requests, view
from tests.engine.steps import extras, hosted, windowed

N, PROMPT, OUTPUT = 6, 60, 40

ENGINES: list[tuple[str, dict[str, Any]]] = [
    ("extras", {"graphs": "none"}),
    ("extras", {"graphs": "piecewise"}),
    ("extras", {"graphs": "full_and_piecewise"}),
    ("extras", {"graphs": "full_decode_only", "capture_sizes": (1, 2, 4, 8, 16, 32)}),
    ("extras", {"capture_multiples": True, "capture_sizes": (1, 2, 4, 8, 16, 32)}),
    ("extras", {"idle_rank_share": 1.0}),
    ("hosted", {"overlap_host": True}),
    ("windowed", {}),
    ("windowed", {"draft_kv_tokens": 32}),
    ("plain", {"depth_zero_overhead": "1ms", "depth_zero_overhead_per_sequence": "50us"}),
]


def setup_of(kind: str, engine: dict[str, Any]) -> Setup:
    """Equal requests, all at once; no draft is ever accepted."""
    profile = {
        "extras": extras(linear_profile(), 7.0, 3.0),
        "hosted": hosted(linear_profile(), 4.0, 0.5),
        "windowed": windowed(16),
        "plain": linear_profile(),
    }[kind]
    return Setup(
        requests(np.zeros(N), PROMPT, OUTPUT),
        profile,
        profile.drafters["d"],
        EngineConfig(preset="ideal", kv_blocks=1000, draft_past_end=True, **engine),
        (RecordedAcceptance([[0] * OUTPUT] * N),),  # type: ignore[arg-type]
        3,
    )


@pytest.mark.parametrize(("kind", "engine"), ENGINES)
@pytest.mark.parametrize("depth", [0, 3])
def test_a_round_costs_what_policies_were_told(kind: str, engine: dict[str, Any], depth: int) -> None:
    """Equal sequences at one depth: target part of every decode step is the price at its context."""
    setup = setup_of(kind, engine)
    policy: Policy = Static(depth)
    cost = build_replica(simpy.Environment(initial_time=0), setup, policy).cost
    steps = simulate(setup, policy).steps
    whole = (steps["decodes"] == N) & (steps["prefill_tokens"] == 0)
    whole &= steps["drafted"] == N * depth
    whole[0] = False
    assert whole.sum() > 20
    tokens, context = N * (depth + 1), steps["context_tokens"][whole]
    priced = [float(cost.target_ns(tokens, N, float(c))) for c in context.tolist()]
    charged = (steps["verify_ns"] + steps["accept_ns"] + steps["host_ns"])[whole]
    np.testing.assert_allclose(charged, priced, atol=2)


@pytest.mark.parametrize(("kind", "engine"), ENGINES)
def test_prices_kept_by_batch_size_are_those_of_the_tables(kind: str, engine: dict[str, Any]) -> None:
    """Straight lines over context, bent by windows or not: the kept time is the time at this context."""
    cost = build_replica(simpy.Environment(initial_time=0), setup_of(kind, engine), Static(3)).cost
    kept = RoundTimes(3)
    for context in (100, 5000):
        batch = view(cost, N, context, max_depth=3)
        exact = cost.round_ns(N, np.arange(4), float(N * context))
        np.testing.assert_allclose(kept.uniform(batch), exact, rtol=1e-9)
    corner = Corners(3).of(cost, N)
    far = 400_000.0
    exact = cost.target_ns(N + corner.totals, N, far) + cost.first_ns(corner.totals, N, N, far)
    if kind != "hosted":
        np.testing.assert_allclose(corner.slots[0] + far * corner.slots[1], exact, rtol=1e-6)


def test_off_is_priced_without_the_cost_of_depth_zero() -> None:
    """Without a drafter there is nothing that waits at depth 0."""
    setup = setup_of("plain", {"depth_zero_overhead": "1ms"})
    off, on = (build_replica(simpy.Environment(initial_time=0), setup, p).cost for p in (Off(), Static(0)))
    assert float(on.target_ns(N, N, 600.0) - off.target_ns(N, N, 600.0)) == pytest.approx(1e6)
