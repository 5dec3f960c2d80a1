"""The oracle bounds every causal policy in any one state."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from calibrate.profile import Curve, Term
from sim.cost.step_cost import StepCost
from sim.policies.base import Batch
from sim.policies.oracle import Oracle
from tests.engine.modelled import linear_profile


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
    cost = StepCost(profile.model_copy(update={"target": target}), profile.drafters["d"], 256)
    ints = st.lists(st.integers(0, 7), min_size=n, max_size=n)
    return Batch(
        now_ns=0,
        scheduled=n,
        running=n,
        waiting=0,
        step_tokens=n,
        max_depth=7,
        request=np.arange(n),
        class_id=np.zeros(n, dtype=np.int64),
        context_tokens=np.full(n, 100),
        remaining_tokens=np.full(n, 100),
        cost=cost,
        run=np.array(draw(ints)),
    )


def rate(batch: Batch, depths: np.ndarray) -> float:
    """Tokens emitted by the next round per ns of drafting and verifying it."""
    assert batch.run is not None
    n, context = batch.sequences, float(batch.context_tokens.sum())
    time = batch.cost.target_ns(n + depths.sum(), n, context)
    time = time + batch.cost.draft_round_ns(n, depths.max(), context)
    return float((n + np.minimum(depths, batch.run).sum()) / time)


@settings(max_examples=200, deadline=None)
@given(states(), st.data())
def test_no_choice_of_depths_beats_the_oracle(batch: Batch, data: st.DataObject) -> None:
    """Not any uniform depth, and not any per-sequence one, at the same depth limit."""
    best = rate(batch, np.asarray(Oracle(7).draft_depths(batch)))
    others = [np.full(batch.sequences, k) for k in range(8)]
    some = st.lists(st.integers(0, 7), min_size=batch.sequences, max_size=batch.sequences)
    others += [np.array(data.draw(some)) for _ in range(4)]
    assert best >= max(rate(batch, depths) for depths in others) * (1 - 1e-12)
