"""Costs whose target pass takes listed times by tokens and nothing else, and batches to decide for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from calibrate.profile import Curve, Target, Term
from sim.cost.step_cost import StepCost
from sim.policies.base import Batch, Claims, Int64, Policy
from tests.engine.modelled import linear_profile, view

CHANCES = st.one_of(st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]), st.floats(0, 1, width=32))
"""Confidences, with many equal ones and with 0 and 1 among them."""


def curve_cost(ns: Sequence[float] | NDArray[np.float64]) -> StepCost:
    """A target pass of t tokens takes ``ns[t - 1]``, whatever the sequences; drafting is free."""
    plain = linear_profile(0, 0, draft=None)
    curve = Curve(x=tuple(range(1, len(ns) + 1)), ns=tuple(float(value) for value in ns))
    term = Term(name="listed", mark="analytic", source="test", curve=curve)
    target = Target(work=plain.target.work, verify=(term,))
    return StepCost(plain.model_copy(update={"target": target}), None, len(ns))


def claims(rows: Sequence[Sequence[float]] | NDArray[np.floating]) -> Claims:
    """Confidences from lists."""
    return np.array(rows, dtype=np.float32)


def confidences(rows: int, depth: int) -> st.SearchStrategy[Claims]:
    """Confidences of ``rows`` sequences of ``depth`` drafts."""
    row = st.lists(CHANCES, min_size=depth, max_size=depth)
    return st.lists(row, min_size=rows, max_size=rows).map(claims)


def decide(policy: Policy, cost: StepCost, confidence: Claims, **given: Any) -> Int64:
    """Depths for one step in which everything asked for was proposed."""
    batch = seen(cost, len(confidence), **given)
    depths = policy.draft_depths(batch)
    shown = confidence * (np.arange(confidence.shape[1]) < np.reshape(depths, (-1, 1)))
    return np.broadcast_to(policy.verify_depths(batch, depths, shown), len(confidence))


def seen(cost: StepCost, sequences: int, **given: Any) -> Batch:
    """What a policy sees, progress included; contexts of 100 tokens."""
    zeros: NDArray[np.int64] = np.zeros(sequences, dtype=np.int64)
    progress = {"output_tokens": zeros + 1, "since_first_ns": zeros, "tpot_limit_ns": zeros}
    return view(cost, sequences, 100, **(progress | given))
