"""SGLang's adaptive depths: each strategy against a second writing of its rule, and its laws."""

from __future__ import annotations

from itertools import groupby, pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.policies.config import Bounds
from sim.policies.sglang_ema import SglangEma, SglangEmaConfig
from sim.policies.sglang_throughput_aware import SglangThroughputAwareConfig, Windows
from tests.policies.uniform import batch, drive, outcome, round_ms

SEEDS = st.integers(0, 2**32)
SIZES = st.lists(st.integers(1, 80), min_size=30, max_size=120)


def ema(**options: Any) -> SglangEma:
    return SglangEmaConfig.model_validate({"policy": "sglang_ema"} | options).build(Bounds(64))


def one_slot(steps: list[int], up: float = 0.0, down: float = -0.25, **options: Any) -> SglangEma:
    slot = {"candidate_steps": steps, "up_hysteresis": up, "down_hysteresis": down}
    return ema(slots={"1": slot}, **options)


class LiteralEma:
    """The rule once more, from its description: thresholds first, then where the average falls."""

    SLOTS = ((64, [0], 0.0), (32, [0, 1], 0.0), (8, [0, 1, 3], 0.0), (1, [1, 3, 5, 7], -0.25))

    def __init__(self) -> None:
        self.state = {floor: [3 if 3 in c else c[len(c) // 2], 0.0, 0] for floor, c, _ in self.SLOTS}
        for value in self.state.values():
            value[1] = value[0] - 1.0

    def slot(self, size: int) -> tuple[int, list[int], float]:
        return next(slot for slot in self.SLOTS if size >= slot[0])

    def depth(self, size: int) -> int:
        return int(self.state[self.slot(size)[0]][0])

    def learn(self, accepted: list[int], depth: int) -> None:
        floor, candidates, down = self.slot(len(accepted))
        state = self.state[floor]
        if (depth == 0) and state[0] > 0:
            return
        if state[0] > 0:
            state[1] = 0.8 * state[1] + 0.2 * (sum(accepted) / len(accepted))
        state[2] += 1
        if state[2] > 10 and state[2] % 5 == 0:
            state[0] = self.moved(int(state[0]), candidates, down, state)

    def moved(self, depth: int, candidates: list[int], down: float, state: list[float]) -> int:
        average = state[1]
        if depth == 0:
            tried = [*candidates, candidates[-1]][candidates.index(0) + 1]
            state[1] = tried - 1.0 if tried > 0 and average < 0 else average
            return tried
        floors = {step: (0.5 if step == 0 else step - 0.5) + down for step in candidates}
        at = candidates.index(depth)
        if at and average <= floors[candidates[at - 1]]:
            return min(step for step in candidates[:at] if average <= floors[step])
        reached = [step for step in candidates[at:-1] if average > step - 0.5]
        return candidates[at + len(reached)]


@settings(deadline=None, max_examples=40)
@given(SIZES, SEEDS, st.integers(0, 8))
def test_ema_decides_as_the_rule_written_a_second_time(sizes: list[int], seed: int, most: int) -> None:
    """SGLang's default slots, batches of any size, acceptance of any kind."""
    literal, random = LiteralEma(), Random(seed)
    expected: list[int] = []

    def accepts(step: int, size: int, depth: int) -> list[int]:
        expected.append(literal.depth(sizes[step]))
        accepted = [min(depth, random.randint(0, most)) for _ in range(size)]
        literal.learn(accepted, depth)
        return accepted

    sizes = [min(size, 7) if random.random() < 0.7 else size for size in sizes]
    assert drive(ema(), sizes, accepts)[1:] == expected


@given(st.floats(0.01, 1), st.integers(0, 60), st.integers(0, 7))
def test_the_average_of_equal_batches_has_its_closed_form(alpha: float, batches: int, got: int) -> None:
    """a + (1 - alpha)^m (start - a) after m batches that accept a."""
    policy = one_slot([7], start=7, ema_alpha=alpha)
    for _ in range(batches):
        policy.observe(outcome([got] * 3, depth=7))
    expected = got + (1 - alpha) ** batches * (6 - got)
    assert policy.slots[0].average == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(("start", "accepted", "depth"), [(3, [1, 0, 0, 0], 1), (1, [1, 1, 0, 0], 1)])
def test_at_the_thresholds_a_slot_falls_and_does_not_rise(
    start: int, accepted: list[int], depth: int
) -> None:
    """Between 1 and 3 it falls at an average of 1 - 0.5 - 0.25 and rises above 1 - 0.5."""
    policy = one_slot([1, 3], start=start, ema_alpha=1, warmup_batches=0, update_interval=1)
    policy.observe(outcome(accepted, depth=start))
    assert policy.draft_depths(batch(4)) == depth


def test_the_average_rests_at_depth_zero() -> None:
    """Not even an outcome of drafts made before moves it; a slot that began there then assumes 0."""
    policy = one_slot([0, 1, 3], start=0, warmup_batches=0, update_interval=2)
    policy.observe(outcome([3, 3], depth=3))
    assert policy.slots[0].average == -1
    policy.observe(outcome([0, 0], depth=0))
    assert policy.draft_depths(batch(2)) == 1
    assert policy.slots[0].average == 0


def test_nothing_moves_before_the_warm_up_and_between_intervals() -> None:
    """Warm-up 10, interval 5: the first change can come after 15 batches, later ones every 5."""
    policy = one_slot([1, 3, 5, 7], start=1)
    depths = []
    for _ in range(40):
        policy.observe(outcome([policy.slots[0].depth] * 4, depth=policy.slots[0].depth))
        depths.append(policy.draft_depths(batch(4)))
    changed = [m + 1 for m in range(1, 40) if depths[m] != depths[m - 1]]
    assert depths[:14] == [1] * 14
    assert changed
    assert all(m >= 15 and m % 5 == 0 for m in changed)
    assert depths[-1] == 7


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.integers(0, 7), min_size=1, max_size=6), st.sampled_from([1, 3, 5, 7]), st.floats(-0.45, 0)
)
def test_constant_acceptance_settles_on_one_depth(runs: list[int], start: int, down: float) -> None:
    """Requests that always accept the same number cannot make candidates above 0 flip for ever.

    Down to half a draft of hysteresis, where rising and falling thresholds would overlap.
    """
    policy = one_slot([1, 3, 5, 7], down=down, start=start)
    depths = drive(policy, [len(runs)] * 300, lambda step, n, k: [min(k, run) for run in runs])
    assert len(set(depths[150:])) == 1


def test_hysteresis_keeps_a_wandering_average_from_flipping_the_depth() -> None:
    """An average between 0.40 and 0.60 crosses 0.5, where 1 and 3 part, but never 0.25."""

    def changes(down: float) -> int:
        policy = one_slot([1, 3], down=down, start=1)
        wandering = [
            [1] * (6 if step // 20 % 2 else 4) + [0] * (4 if step // 20 % 2 else 6) for step in range(400)
        ]
        depths = drive(policy, [10] * 400, lambda step, n, k: wandering[step])
        return sum(a != b for a, b in pairwise(depths))

    assert changes(down=-0.25) == 1
    assert changes(down=0.0) >= 10


def test_a_slot_at_depth_zero_tries_again_at_every_update() -> None:
    """Nothing is ever accepted: the slot falls to 0 and drafts again 5 batches later."""
    depths = drive(one_slot([0, 1], start=1), [4] * 60, lambda step, n, k: [0] * n)
    zeros = [len(list(run)) for depth, run in groupby(depths) if depth == 0]
    assert len(zeros) >= 4
    assert set(zeros[:-1]) == {5}


class LiteralThroughput:
    """The rule once more: plain lists, one candidate after the other."""

    def __init__(self, slots: dict[int, list[int]], start: int, margin: float) -> None:
        self.slots, self.margin, self.depth = slots, margin, start
        self.windows: list[list[float]] = [[] for _ in range(7)]
        self.since = 0

    def rate(self, position: int) -> float:
        rates: list[float] = []
        for window in self.windows[: position + 1]:
            if window:
                rates.append(sum(window) / len(window))
            elif len(rates) == 1:
                rates.append(rates[0])
            elif rates[0] <= 0:
                rates.append(0.0)
            else:
                ratio = (rates[-1] / rates[0]) ** (1.0 / (len(rates) - 1))
                rates.append(max(0.0, min(rates[-1], rates[-1] * ratio)))
        return rates[position]

    def score(self, size: int, steps: int) -> float:
        return (1 + sum(self.rate(k) for k in range(steps))) / round_ms(size, steps, 128)

    def go(self, steps: int) -> None:
        if steps < self.depth:
            self.windows[steps:] = [[] for _ in self.windows[steps:]]
        self.depth = steps

    def choose(self, size: int) -> int:
        candidates = self.slots[max(floor for floor in self.slots if floor <= size)]
        known = bool(self.windows[0])
        if self.depth not in candidates:
            best = (
                max(candidates, key=lambda s: self.score(size, s))
                if known
                else candidates[len(candidates) // 2]
            )
            self.go(best)
        if self.since >= 5:
            self.since = 0
            if all(len(self.windows[k]) == 20 for k in range(self.depth)):
                best = max(candidates, key=lambda s: self.score(size, s))
                if self.score(size, best) > self.score(size, self.depth) * (1 + self.margin):
                    self.go(best)
        return self.depth

    def learn(self, accepted: list[int], depth: int) -> None:
        for k in range(depth):
            share = sum(a > k for a in accepted) / len(accepted)
            self.windows[k] = [*self.windows[k], share][-20:]
        self.since += 1


@settings(deadline=None, max_examples=30)
@given(SIZES, SEEDS, st.floats(0.05, 0.95), st.sampled_from([0.0, 0.013, 0.1]))
def test_throughput_aware_decides_as_the_rule_written_a_second_time(
    sizes: list[int], seed: int, acceptance: float, margin: float
) -> None:
    slots = {1: [1, 3, 5, 7], 8: [1, 2, 4], 32: [1, 3], 64: [2]}
    options = {"slots": {str(floor): steps for floor, steps in slots.items()}, "switch_hysteresis": margin}
    config = SglangThroughputAwareConfig.model_validate({"policy": "sglang_throughput_aware"} | options)
    literal, random = LiteralThroughput(slots, start=3, margin=margin), Random(seed)
    expected: list[int] = []

    def accepts(step: int, size: int, depth: int) -> list[int]:
        if not expected:
            expected.append(literal.choose(sizes[0]))
        expected.append(literal.choose(sizes[step]))
        runs = [next((k for k in range(depth) if random.random() > acceptance), depth) for _ in range(size)]
        literal.learn(runs, depth)
        return runs

    sizes = [size if random.random() < 0.1 else 6 for size in sizes]
    assert drive(config.build(Bounds(64)), sizes, accepts) == expected


@pytest.mark.parametrize(
    ("known", "continued"),
    [([0.8], [0.8, 0.8]), ([0.8, 0.4], [0.2, 0.1]), ([0.2, 0.6], [0.6, 0.6]), ([0, 0.5], [0, 0])],
)
def test_unknown_positions_continue_the_known_ones(known: list[float], continued: list[float]) -> None:
    """Flat after one, geometrically after more, never rising, and nothing after a first of 0."""
    windows = Windows(positions=len(known) + 2, size=20)
    for window, rate in zip(windows.rates, known, strict=False):
        window.append(rate)
    assert windows.means() == pytest.approx([*known, *continued])


SURVIVAL = (0.8, 0.6, 0.5, 0.3, 0.2, 0.1, 0.1)


@pytest.mark.parametrize("size", [1, 10, 20, 40, 100])
def test_known_acceptance_and_costs_lead_to_the_best_candidate(size: int) -> None:
    """Once every position has 20 batches: the argmax of (1 + sum) / ms, written out here."""
    runs = [sum(rank < 10 * share for share in SURVIVAL) for rank in range(10)]
    options = {"start": 7, "switch_hysteresis": 0}
    config = SglangThroughputAwareConfig.model_validate({"policy": "sglang_throughput_aware"} | options)
    policy = config.build(Bounds(64))
    for _ in range(20):
        assert policy.draft_depths(batch(size)) == 7
        policy.observe(outcome(runs, depth=7))
    value = {s: (1 + sum(SURVIVAL[:s])) / round_ms(size, s, 128) for s in (1, 3, 5, 7)}
    assert policy.draft_depths(batch(size)) == max(value, key=lambda s: value[s])


def test_a_better_candidate_must_win_by_the_margin() -> None:
    """Nothing is accepted beyond draft 1, so depth 1 beats depth 3 by the ratio of their times."""
    gain = round_ms(4, 3, 128) / round_ms(4, 1, 128)
    for margin, depth in ((gain - 1.001, 1), (gain - 0.999, 3)):
        options = {"slots": {"1": [1, 3]}, "switch_hysteresis": margin}
        config = SglangThroughputAwareConfig.model_validate({"policy": "sglang_throughput_aware"} | options)
        policy = config.build(Bounds(64))
        depths = drive(policy, [4] * 60, lambda step, n, k: [min(k, 1)] * n)
        assert depths[-1] == depth
        assert depths[0] == 3


def test_a_depth_that_is_no_candidate_at_this_batch_size_is_left_at_once() -> None:
    """SGLang has captured graphs for the candidates alone; without data the middle one is taken."""
    options = {"slots": {"1": [3, 5, 7], "8": [1, 2]}, "start": 5}
    config = SglangThroughputAwareConfig.model_validate({"policy": "sglang_throughput_aware"} | options)
    policy = config.build(Bounds(64))
    assert [policy.draft_depths(batch(n)) for n in (4, 8, 9, 4)] == [5, 2, 2, 5]
