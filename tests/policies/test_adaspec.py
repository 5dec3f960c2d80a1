"""AdaSpec's drafting loop and pruning, against the same written out one sequence at a time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sim.cost.step_cost import StepCost
from sim.policies.adaspec import AdaSpec, CapturedSizes
from sim.policies.base import Batch, Claims, Int64
from tests.engine.modelled import linear_profile, view

SIZES = (1, 2, 4, 8, 16, 24, 32)
WIDTH, START, CONTEXT = 6, 0.6, 500
EIGHTHS = st.integers(0, 8).map(lambda n: n / 8)


def cost(per_token_ms: float, sizes: tuple[int, ...] = SIZES) -> StepCost:
    """20.3 ms + per token; first draft pass 2.1 ms + 0.05 ms a token, further ones 1.3 ms."""
    profile = linear_profile(20.3, per_token_ms, 1e-4, draft=(2.1, 0.05, 1.3))
    return StepCost(profile, profile.drafters["d"], 4096, sizes)


class OneByOne:
    """The rule in plain Python; ``mean`` lives on from step to step."""

    def __init__(self, now: Batch) -> None:
        self.now, self.n = now, now.sequences
        self.seen: list[float] = []
        self.mean = START

    def draft_ns(self, depth: int) -> float:
        """The drafter's part of a round that goes ``depth`` deep everywhere."""
        return float(self.now.cost.drafting_ns(self.n, self.n * depth, depth, self.n * CONTEXT))

    def round_ns(self, depth: int, drafts: int | None = None) -> float:
        """A round drafted to ``depth``; ``drafts`` verified, all of them by default."""
        drafts = self.n * depth if drafts is None else drafts
        return self.draft_ns(depth) + float(
            self.now.cost.target_ns(self.n + drafts, self.n, self.n * CONTEXT)
        )

    def starts(self) -> bool:
        return self.n * (1 + self.mean) / self.round_ns(1) > self.n / self.round_ns(0)

    def deepest(self, depths: list[int], claims: list[list[float]]) -> int:
        """Levels drafted, one after the other."""
        chains: list[list[float]] = [[] for _ in depths]
        goodput = self.n / self.round_ns(0)
        for level in range(max(depths, default=0)):
            going = [i for i, depth in enumerate(depths) if depth > level]
            tokens = self.n + sum(sum(chain) for chain in chains)
            hoped = sum(chains[i][-1] if chains[i] else 1.0 for i in going) * self.mean
            if level > 0 and (tokens + hoped) / self.round_ns(level + 1) < goodput:
                return level
            for i in going:
                chains[i].append((chains[i][-1] if chains[i] else 1.0) * claims[i][level])
            reached = (self.n + sum(sum(chain) for chain in chains)) / self.round_ns(level + 1)
            if reached < goodput:
                return level + 1
            goodput = reached
            self.seen += [claims[i][level] for i in going]
            self.mean = sum(self.seen) / len(self.seen)
        return max(depths, default=0)

    def pruned(self, depths: list[int], claims: list[list[float]]) -> list[int]:
        """Depths after the least likely drafts are dropped, if goodput is not lower for it."""
        ranked = [
            (-float(np.prod(claims[i][: level + 1])), level, i)
            for i, depth in enumerate(depths)
            for level in range(depth)
        ]
        smaller = [size for size in SIZES if size < self.n + len(ranked)]
        if not ranked or not smaller or smaller[-1] < self.n:
            return depths
        kept = [item for item in sorted(ranked)[: smaller[-1] - self.n] if item[0] < 0]
        less = self.n - sum(item[0] for item in kept)
        all_of_them = self.n - sum(item[0] for item in ranked)
        deepest = max(depths)
        if less / self.round_ns(deepest, smaller[-1] - self.n) < all_of_them / self.round_ns(deepest):
            return depths
        return [sum(i == owner for _, _, owner in kept) for i in range(len(depths))]


def rounds(n: int) -> st.SearchStrategy[list[tuple[Claims, Int64]]]:
    """Claims and largest depths of a few steps of ``n`` sequences."""
    claims = arrays(np.float32, (n, WIDTH), elements=EIGHTHS)
    depths = arrays(np.int64, n, elements=st.integers(0, WIDTH))
    return st.lists(st.tuples(claims, depths), min_size=1, max_size=4)


@settings(max_examples=80, deadline=None)
@given(st.data(), st.floats(0.05, 4.0))
def test_the_batch_drafts_and_verifies_as_the_plain_loops_say(data: st.DataObject, per_token: float) -> None:
    """Over several steps, so that the running mean is the same as well."""
    n = data.draw(st.integers(1, 6))
    now = view(cost(per_token), n, CONTEXT, max_depth=WIDTH)
    policy, plain = AdaSpec(WIDTH, START, True, False), OneByOne(now)
    for claims, depths in data.draw(rounds(n)):
        assert policy.draft_depths(now) == (WIDTH if plain.starts() else 0)
        deepest = plain.deepest(depths.tolist(), claims.tolist())
        made = np.minimum(policy.stop_depths(now, depths, claims), depths)
        assert made.tolist() == np.minimum(depths, deepest).tolist()
        assert policy.mean == pytest.approx(plain.mean, rel=1e-12)
        verified = policy.verify_depths(now, made, claims * (np.arange(WIDTH) < made[:, None]))
        assert np.asarray(verified).tolist() == plain.pruned(made.tolist(), claims.tolist())


def sure(n: int, claim: float = 1.0) -> Claims:
    return np.full((n, WIDTH), claim, dtype=np.float32)


def test_sure_drafts_are_made_to_the_end_and_hopeless_ones_stop_after_the_first() -> None:
    """A level that turns out to lose is the last one, and is kept."""
    now = view(cost(0.05), 4, CONTEXT, max_depth=WIDTH)
    for claim, depth in ((1.0, WIDTH), (0.0, 1)):
        policy = AdaSpec(WIDTH, START, False, False)
        assert policy.draft_depths(now) == WIDTH
        assert np.max(policy.stop_depths(now, WIDTH, sure(4, claim))) == depth
        assert np.max(policy.verify_depths(now, depth, sure(4, claim))) == depth


def test_nothing_is_drafted_where_tokens_cost_more_than_they_bring() -> None:
    """At 64 sequences and 4 ms a token, one more draft each is predicted to lose."""
    policy = AdaSpec(WIDTH, START, True, False)
    assert policy.draft_depths(view(cost(4.0), 64, CONTEXT)) == 0
    assert policy.draft_depths(view(cost(4.0), 0, CONTEXT)) == 0


def test_the_least_likely_tail_is_pruned_to_the_captured_graph_below() -> None:
    """3 x (1 + 3) = 12 tokens are padded to 16 of 4 ms; 8 hold the 5 likeliest of 9 drafts."""
    now = view(cost(4.0), 3, CONTEXT, max_depth=WIDTH)
    claims = np.array([[0.9, 0.9, 0.9], [0.9, 0.8, 0.1], [0.1, 0.1, 0.1]], dtype=np.float32)
    for prune, depths in ((True, [3, 2, 0]), (False, [3, 3, 3])):
        verified = AdaSpec(3, START, prune, False).verify_depths(now, 3, claims)
        assert np.broadcast_to(verified, 3).tolist() == depths


def test_pruning_that_neither_gains_nor_loses_is_done() -> None:
    """Where tokens cost nothing and no draft can survive, fewer are as good: not lower is enough."""
    now = view(cost(0.0), 3, CONTEXT, max_depth=WIDTH)
    verified = AdaSpec(3, START, True, False).verify_depths(now, 3, sure(3, 0.0))
    assert np.broadcast_to(verified, 3).tolist() == [0, 0, 0]


@pytest.mark.parametrize("keep", [True, False])
def test_a_tpot_limit_bounds_the_round(keep: bool) -> None:
    """Rounds take 23.1 + 1.4 (k - 1) ms for one sure sequence: 27 ms allow three levels."""
    limit = np.array([27_000_000])
    now = view(cost(0.1, ()), 1, 0, max_depth=WIDTH, tpot_limit_ns=limit if keep else None)
    policy = AdaSpec(WIDTH, START, True, keep)
    assert policy.wants_progress is keep
    time = [20.3 + 0.1 * (1 + k) + (2.1 + 0.05 + 1.3 * (k - 1)) for k in range(1, WIDTH + 1)]
    within = sum(ms <= 27 for ms in time)
    assert np.max(policy.stop_depths(now, WIDTH, sure(1))) == (within if keep else WIDTH)
    tight = view(cost(0.1, ()), 1, 0, tpot_limit_ns=np.array([22_000_000]))
    assert not keep or policy.draft_depths(tight) == 0


def test_sizes_without_captured_graphs_are_never_below() -> None:
    assert CapturedSizes().below(cost(0.5, ()), 100) == 0
    sizes = CapturedSizes()
    assert [sizes.below(cost(0.5), tokens) for tokens in (1, 2, 9, 16, 17, 500)] == [0, 1, 8, 8, 16, 32]
