"""Batches and outcomes for tests of policies that choose one depth for the whole batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sim.cost.step_cost import StepCost
from sim.policies.base import Batch, Outcome, Policy
from tests.engine.modelled import linear_profile, view

PROFILE = linear_profile(20.0, 0.5, 1e-4, draft=(2.0, 0.05, 1.5))
COST = StepCost(PROFILE, PROFILE.drafters["d"], 4096)


def round_ms(n: int, k: int, context: int) -> float:
    """What ``COST`` charges a round of ``n`` sequences at depth ``k``, from the profile's numbers."""
    drafting = 2.0 + 0.05 * n + 1.5 * (k - 1) if k else 0.0
    return 20.0 + 0.5 * n * (k + 1) + 1e-4 * context * n + drafting


def batch(sequences: int, context: int = 500, **counts: Any) -> Batch:
    """A batch of equal sequences, all of them scheduled and running unless told otherwise."""
    return view(COST, sequences, context, **counts)


def outcome(accepted: Sequence[int], depth: int, step_ns: int = 1, prefill_tokens: int = 0) -> Outcome:
    """A step in which every sequence verified ``depth`` drafts."""
    got = np.array(accepted, dtype=np.int64)
    return Outcome(step_ns, np.arange(len(got)), np.full(len(got), depth), got, prefill_tokens)


def drive(
    policy: Policy, sizes: Sequence[int], accepts: Callable[[int, int, int], Sequence[int]]
) -> list[int]:
    """Depths chosen step by step, as the engine asks: drafts are verified one step after their choice.

    ``accepts(step, size, depth)`` gives the accepted drafts of the batch that was chosen for.
    """
    chosen: list[int] = []
    before: tuple[int, int] | None = None
    for step, size in enumerate(sizes):
        depth = policy.draft_depths(batch(size))
        assert isinstance(depth, int)
        if before is not None and policy.wants_outcomes:
            policy.observe(outcome(accepts(step, *before), before[1], step_ns=1000))
        before = size, depth
        chosen.append(depth)
    return chosen
