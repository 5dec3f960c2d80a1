"""The step-time curve of the explorer: a decode-only target pass over its tokens, from the cost tables."""

from __future__ import annotations

import numpy as np

from sim.cost.step_cost import StepCost
from sim.map.model import Curve
from sim.scenario.model import Scenario
from sim.sweep.prepare import profile_at
from sim.units import NS_PER_MS

_SAMPLES = 120


def step_curve(scenario: Scenario, most_tokens: int) -> Curve:
    """Target pass, sampling and host time at 1 to ``most_tokens`` tokens of as many sequences."""
    profile = profile_at(scenario.profile_path).in_mode(scenario.profile_mode)
    cost = StepCost(profile, None, most_tokens, scenario.engine.behaviour.capture_sizes)
    few = np.arange(1, min(most_tokens, 32) + 1)
    more = np.geomspace(1, most_tokens, _SAMPLES).round().astype(np.int64)
    tokens = np.union1d(few, more)
    ms = cost.target_ns(tokens, tokens, 0.0) + scenario.engine.step_overhead
    ridge = profile.ridge_tokens
    return Curve(
        tokens=tuple(tokens.tolist()),
        ms=tuple(float(f"{value / NS_PER_MS:.5g}") for value in ms),
        per_context_ms=cost.verify.context / NS_PER_MS,
        per_query_context_ms=cost.verify.query_context / NS_PER_MS,
        per_wide_context_ms=cost.verify.wide / NS_PER_MS,
        ridge=None if ridge is None else float(f"{ridge:.4g}"),
    )
