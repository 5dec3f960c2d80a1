"""Asking a policy for its depth at every batch size: the table is the policy's own answer."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import simpy

from sim.engine.simulate import build_replica
from sim.export.ask import depth_rows, mean_context
from sim.export.settings import Rows
from sim.policies.config import Bounds
from sim.scenario.model import Scenario
from sim.sweep.prepare import make_run, prepare
from tests.engine.modelled import requests, view
from tests.export.wishes import policy
from tests.scenario.support import VALID, read

SMALL = VALID.replace("max_num_seqs: 64", "max_num_seqs: 24").replace("[32, 64]", "[24]")


def scenario(text: str = SMALL) -> Scenario:
    return read(text).cells[0].scenario


def depth_of(rows: Rows, batch: int) -> int:
    return next(k for first, last, k in rows if first <= batch <= last)


@pytest.mark.parametrize(
    "of",
    [
        policy("static", k=3),
        policy("per_batch_size", table=[[1, 5, 5], [6, 17, 2], [18, 24, 0]]),
        policy("mlc_auto"),
        policy("disable_by_batch_size", k=3, threshold=12),
        policy("draft_len_schedule", schedule={"4": 4, "9": 1}),
        policy(
            "per_batch_and_context", table=[[1, 24, 1, 400, 5], [1, 24, 401, 900, 2], [1, 24, 901, 9000, 4]]
        ),
    ],
    ids=lambda each: each.policy,
)
def test_a_rule_over_the_batch_is_asked_for_itself(of: object) -> None:
    """At every batch size the table holds what the policy answers to a batch of that size and context."""
    rows = depth_rows(scenario(), of, 576)  # type: ignore[arg-type]
    setup = prepare(scenario(), of, 0)  # type: ignore[arg-type]
    built = of.build(Bounds(setup.max_depth))  # type: ignore[attr-defined]
    cost = build_replica(simpy.Environment(), setup, built).cost
    for batch in range(1, 25):
        asked = int(np.max(built.draft_depths(view(cost, batch, 576, max_depth=setup.max_depth))))
        assert depth_of(rows, batch) == asked, batch


def test_a_cost_model_is_asked_for_the_depth_with_the_best_goodput() -> None:
    """Where acceptance is a, the table's depth gives (1 - a^(k+1)) / (1 - a) / T(n, k) near its most.

    Alone or among few, the policy's own estimate of a wavers, and its depth with it.
    """
    own = scenario(SMALL.replace("24", "48"))
    of = policy("goodput", k_max=5)
    setup = prepare(own, of, 0)
    cost = build_replica(simpy.Environment(), setup, of.build(Bounds(5))).cost
    rows = depth_rows(own, of, 576)
    depths = np.arange(6)
    tokens = (0.7**depths).cumsum()
    for batch, share in ((1, 0.94), (4, 0.94), (16, 0.98), (48, 0.98)):
        rate = tokens / cost.round_ns(batch, depths, 576.0 * batch)
        assert rate[depth_of(rows, batch)] >= share * rate.max()


def test_rows_ascend_from_one_to_the_largest_batch_without_gaps() -> None:
    rows = depth_rows(scenario(), policy("mlc_auto"), 576)
    assert rows[0][0] == 1
    assert rows[-1][1] == 24
    assert all(b[0] == a[1] + 1 and a[2] != b[2] for a, b in pairwise(rows))


def test_batches_that_do_not_fit_keep_the_depth_of_the_largest_that_does() -> None:
    """40 blocks of 16 tokens hold one request of 576 tokens, so batch 1 is all that ever runs."""
    tight = scenario(SMALL.replace("max_num_seqs: 24}", "max_num_seqs: 24, kv_blocks: 48}"))
    rows = depth_rows(tight, policy("per_batch_size", table=[[1, 1, 4], [2, 24, 2]]), 576)
    assert rows == ((1, 24, 4),)


def test_the_mean_context_is_that_of_decoding_steps() -> None:
    """Without drafts a request decodes its output one token a step: prompt + 1, prompt + 2, ... tokens."""
    assert mean_context(requests([0, 0], [100, 1000], [10, 90])) == round((10 * 105 + 90 * 1045) / 100)
    own = scenario(SMALL.replace("num_requests: 500", "num_requests: 60"))
    records, setup = make_run(own, policy("off"), 1)
    pure = records.steps["prefill_tokens"] == 0
    seen = records.steps["context_tokens"][pure].sum() / records.steps["decodes"][pure].sum()
    assert mean_context(setup.requests) == pytest.approx(seen, rel=0.02)
