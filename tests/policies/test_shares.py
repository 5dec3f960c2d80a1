"""``tetris`` and ``dcut``: a fixed number of drafts, and a share of them."""

from __future__ import annotations

from math import ceil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.policies.base import Claims
from sim.policies.budget import spend, survival
from sim.policies.config import Bounds
from sim.policies.dcut import DCut, DCutConfig
from sim.policies.tetris import TetrisConfig
from tests.policies.curves import claims, confidences, curve_cost, decide

FREE = curve_cost([1.0] * 64)


def dcut(**parameters: object) -> DCut:
    """The policy at depth 4."""
    return DCutConfig(policy="dcut", k_max=4, **parameters).build(Bounds(4))


def topk(confidence: Claims, capacity: int) -> list[int]:
    """The authors' selection: top of the cumulative log probabilities, deepest chosen per sequence."""
    with np.errstate(divide="ignore"):
        value = np.log(confidence).cumsum(axis=1)
    best = np.argsort(-value.ravel(), kind="stable")[:capacity]
    depth = value.shape[1]
    return [max((int(i) % depth + 1 for i in best if i // depth == r), default=0) for r in range(len(value))]


@given(st.lists(st.integers(1, 999), min_size=12, max_size=12, unique=True), st.integers(0, 14))
def test_tetris_keeps_what_the_authors_keep(thousandths: list[int], capacity: int) -> None:
    """On confidences that are never equal (the authors leave the order of equals to the device)."""
    confidence = claims(np.array(thousandths).reshape(3, 4) / 1000)
    policy = TetrisConfig(policy="tetris", k=3, extra=1, capacity=capacity).build(Bounds(9))
    assert decide(policy, FREE, confidence).tolist() == topk(confidence, capacity)


@given(confidences(3, 5))
def test_tetris_spends_k_for_every_sequence_unless_told_otherwise(confidence: Claims) -> None:
    policy = TetrisConfig(policy="tetris", k=2, extra=3).build(Bounds(9))
    chosen = decide(policy, FREE, confidence)
    assert chosen.sum() == min(6, (survival(confidence) > 0).sum())
    assert policy.max_depth == 5


@given(confidences(3, 4), st.floats(0.01, 1))
def test_dcut_keeps_its_share(confidence: Claims, ratio: float) -> None:
    chosen = decide(dcut(ratio=ratio), FREE, confidence)
    assert chosen.tolist() == spend(survival(confidence), ceil(ratio * 12)).tolist()


@given(confidences(3, 4), st.floats(0.01, 1))
def test_dcut_may_keep_every_first_draft(confidence: Claims, ratio: float) -> None:
    chosen = decide(dcut(ratio=ratio, keep_first=True), FREE, confidence)
    possible = (survival(confidence) > 0).sum(axis=1)
    assert (chosen >= np.minimum(possible, 1)).all()
    assert chosen.sum() <= max(ceil(ratio * 12), 3)


@given(confidences(3, 4), st.lists(st.integers(1, 50).map(float), min_size=15, max_size=15))
def test_auto_takes_the_best_of_four(confidence: Claims, ns: list[float]) -> None:
    """Expected drafts per time at 3, 6, 9 and 12 of 12 drafts."""
    confidence = np.maximum(confidence, np.float32(0.05))
    kept = int(decide(dcut(), curve_cost(ns), confidence).sum())
    likeliest = sorted(survival(confidence).ravel().tolist(), reverse=True)
    value = {m: sum(likeliest[:m]) / ns[3 + m - 1] for m in (3, 6, 9, 12)}
    assert value[kept] == pytest.approx(max(value.values()), rel=1e-5)


def test_nothing_to_decide_is_no_error() -> None:
    none = np.zeros((0, 4), dtype=np.float32)
    for policy in (dcut(), dcut(ratio=0.5), TetrisConfig(policy="tetris").build(Bounds(0))):
        assert decide(policy, FREE, none).tolist() == []
    for config in (DCutConfig(policy="dcut"), TetrisConfig(policy="tetris", capacity=5)):
        assert decide(config.build(Bounds(0)), FREE, claims([[0], [0]])).tolist() == [0, 0]
