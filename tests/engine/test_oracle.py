"""The oracle bounds every causal policy in any one state."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from calibrate.profile import Curve, Term
from sim.cost.step_cost import DraftHabits, StepCost
from sim.policies.base import Batch
from sim.policies.oracle import Oracle
from tests.engine.modelled import linear_profile, view


@st.composite
def states(draw: st.DrawFn) -> Batch:
    """A random batch with random, even non-monotone, step costs."""
    n = draw(st.integers(1, 12))
    profile = linear_profile(
        draw(st.floats(0, 20)),
        draw(st.floats(0, 2)),
        draft=(draw(st.floats(0, 3)), 0.01, draw(st.floats(0, 3))),
    )
    ns = draw(st.lists(st.floats(1e5, 3e7), min_size=6, max_size=6))
    jagged = Term(
        name="jagged", mark="analytic", source="test", curve=Curve(x=(1, 8, 16, 24, 48, 96), ns=tuple(ns))
    )
    target = profile.target.model_copy(update={"verify": (*profile.target.verify, jagged)})
    engine, ideal = DraftHabits(True, True, True), DraftHabits(False, False, False)
    habits = draw(st.sampled_from([engine, ideal]))
    cost = StepCost(profile.model_copy(update={"target": target}), profile.drafters["d"], 256, (), habits)
    ints = st.lists(st.integers(0, 7), min_size=n, max_size=n)
    return view(cost, n, 100, run=np.array(draw(ints)))


def rate(batch: Batch, depths: np.ndarray) -> float:
    """Tokens emitted by the next round per ns that the engine charges for it."""
    assert batch.run is not None
    cost, n, context = batch.cost, batch.sequences, 100
    kept = int(np.minimum(depths, batch.run).sum())
    tokens, deepest = n + int(depths.sum()), int(depths.max())
    ns = cost.verify_ns(tokens, n, tokens, context * n, context * tokens, 0)
    if deepest or cost.habits.idle_pass:
        first = tokens if cost.habits.over_scheduled else n + kept
        rows = [n if cost.habits.uniform else int((depths > j).sum()) for j in range(1, deepest)]
        further = [(1, each, context * each) for each in rows]
        ns += cost.draft_ns(first, n, context * n, context * first, 0, further)
    return (n + kept) / ns


@settings(max_examples=200, deadline=None)
@given(states(), st.data())
def test_no_choice_of_depths_beats_the_oracle(batch: Batch, data: st.DataObject) -> None:
    """Not any uniform depth, and not any per-sequence one, at the same depth limit."""
    best = rate(batch, np.asarray(Oracle(7).draft_depths(batch)))
    others = [np.full(batch.sequences, k) for k in range(8)]
    some = st.lists(st.integers(0, 7), min_size=batch.sequences, max_size=batch.sequences)
    others += [np.array(data.draw(some)) for _ in range(4)]
    assert best >= max(rate(batch, depths) for depths in others) * (1 - 1e-6)
