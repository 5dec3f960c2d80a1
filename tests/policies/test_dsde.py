"""DSDE follows its formulas, step by step, on the stand-in for divergences."""

from __future__ import annotations

import math
from collections import deque

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.cost.step_cost import StepCost
from sim.policies.base import Claims, Int64, Outcome
from sim.policies.dsde import Dsde, divergence, variance_ratio
from tests.engine.modelled import linear_profile, view

PROFILE = linear_profile(draft=(2.0, 0.05, 1.5))
COST = StepCost(PROFILE, PROFILE.drafters["d"], 4096)
K_MIN, K_MAX = 2, 10


def kl(claim: float) -> float:
    """Total variation 1 - c, and Bretagnolle-Huber as an equality."""
    return -math.log(max(1 - (1 - claim) ** 2, 1e-8))


def weighted_variance(values: list[float]) -> float:
    """Newest last, weight 0.9 per token of age."""
    weights = [0.9 ** (len(values) - 1 - i) for i in range(len(values))]
    mean = sum(w * v for w, v in zip(weights, values, strict=True)) / sum(weights)
    return sum(w * (v - mean) ** 2 for w, v in zip(weights, values, strict=True)) / sum(weights)


class OneByOne:
    """The rule for one request, in plain Python."""

    def __init__(self, warm_up: int) -> None:
        self.warm_up, self.depth = warm_up, K_MIN
        self.recent: deque[float] = deque(maxlen=warm_up)
        self.accepted: list[int] = []
        self.early: list[float] = []
        self.low = self.high = 0

    def learn(self, divergences: list[float], accepted: int) -> bool:
        """Take in one round; whether the warm-up is over."""
        warm_before = len(self.recent) == self.warm_up
        self.recent.extend(divergences)
        if len(self.recent) < self.warm_up:
            self.accepted.append(accepted)
            self.early += divergences
            if accepted >= self.depth:
                self.depth = min(2 * self.depth, K_MAX)
            return False
        if not warm_before:
            self.calibrate()
        ratio = self.ratio()
        scale = math.exp(2 * sum(divergences) / len(divergences)) - 1
        self.depth = self.low
        if ratio * scale <= 1:
            self.depth = math.ceil((self.high - self.low) * (1 - ratio * scale) + self.low)
        return True

    def calibrate(self) -> None:
        """Bounds from the rounds before this one."""
        spread = sum(self.early) / len(self.early) / (max(self.early) or 1)
        self.high = min(K_MAX, max(K_MIN, round(max(self.accepted) * (1 + 0.5 * spread))))
        self.low = min(self.high, max(K_MIN, math.ceil(self.high / 10)))

    def ratio(self) -> float:
        values = list(self.recent)
        long = weighted_variance(values)
        return 20.0 if long < 1e-6 else weighted_variance(values[-max(1, len(values) // 3) :]) / long


def outcome(requests: Int64, drafted: Int64, accepted: Int64) -> Outcome:
    return Outcome(1, requests, drafted, accepted)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.booleans(), st.sampled_from([6, 12, 30]))
def test_depths_are_those_of_the_plain_rule(seed: int, cap: bool, warm_up: int) -> None:
    """Requests come and go; drafts of one step are verified, and learned from, in the next."""
    luck = np.random.default_rng(seed)
    policy = Dsde(K_MIN, K_MAX, warm_up, 1.0, cap)
    plain = {request: OneByOne(warm_up) for request in range(8)}
    carried: dict[int, Claims] = {}
    for _ in range(30):
        requests = np.sort(luck.choice(8, luck.integers(0, 9), replace=False))
        now = view(COST, len(requests), 500, request=requests, max_depth=K_MAX)
        depths = policy.draft_depths(now)
        assert depths.tolist() == [plain[r].depth for r in requests]  # type: ignore[union-attr]
        claims = luck.beta(4, 1, (len(requests), K_MAX)).astype(np.float32)
        policy.verify_depths(now, depths, claims * (np.arange(K_MAX) < np.reshape(depths, (-1, 1))))
        verified = dict(carried)
        drafted = np.array([len(c) for c in verified.values()], dtype=np.int64)
        accepted = luck.integers(0, drafted + 1)
        learn(plain, verified, accepted, cap)
        policy.observe(outcome(np.array(list(verified), dtype=np.int64), drafted, accepted))
        carried = {int(r): c[:d] for r, c, d in zip(requests, claims, depths, strict=True)}  # type: ignore[arg-type]


def learn(plain: dict[int, OneByOne], verified: dict[int, Claims], accepted: Int64, cap: bool) -> None:
    """One step of the plain rule, the cap at the batch's mean included."""
    warm = []
    for (request, claims), count in zip(verified.items(), accepted.tolist(), strict=True):
        if plain[request].learn([kl(float(c)) for c in claims], count):
            warm.append(plain[request])
    if cap and warm:
        ceiling = math.ceil(sum(one.depth for one in warm) / len(warm))
        for one in warm:
            one.depth = min(one.depth, ceiling)


def steady(claim: float, rounds: int = 60) -> float:
    """Depth of one request whose drafts all claim the same and are all accepted."""
    policy, request = Dsde(K_MIN, K_MAX, 100, 1.0, True), np.arange(1)
    now, claims = view(COST, 1, 500, max_depth=K_MAX), np.full((1, K_MAX), claim, dtype=np.float32)
    drafted = np.zeros(1, dtype=np.int64)
    for _ in range(rounds):
        depths = policy.draft_depths(now)
        policy.verify_depths(now, depths, claims)
        policy.observe(outcome(request, drafted, drafted))
        drafted = np.asarray(depths)
    return float(np.max(policy.draft_depths(now)))


def test_a_request_without_divergence_goes_as_deep_as_it_may() -> None:
    """KL = 0 makes SF = 0, whatever WVIR is; the warm-up doubled up to the maximum."""
    assert steady(1.0) == K_MAX


def test_a_request_of_large_divergence_stays_shallow() -> None:
    """Claims of 0.3: KL = 0.67, SF = 2.8, and a steady history counts as WVIR = 20."""
    assert steady(0.3) == K_MIN


def test_the_stand_in_is_the_bound_of_bretagnolle_and_huber() -> None:
    """TV = sqrt(1 - exp(-KL)) for TV = 1 - c; nothing diverges where acceptance is sure."""
    claims = np.array([1.0, 0.9, 0.5, 0.1], dtype=np.float32)
    assert np.sqrt(1 - np.exp(-divergence(claims))) == pytest.approx(1 - claims, abs=1e-6)
    assert np.isfinite(divergence(np.zeros(1, dtype=np.float32))).all()


def test_a_calm_end_of_a_rough_history_has_a_small_ratio() -> None:
    """Weighted variances by hand: the newest third does not vary at all."""
    rough = np.array([[1.0, 0.0, 1.0, 0.0, 0.5, 0.5], [0.5, 0.5, 0.5, 0.5, 0.0, 1.0]])
    calm, wild = variance_ratio(rough)
    assert calm == 0.0
    assert wild > 1.0
