"""Trees accept what their nodes' path probabilities say, with the luck that the chain has."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from heapq import nlargest
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.acceptance.trees import Siblings, grow, sibling_of, tokens_per_round
from sim.errors import InputError
from sim.policies.base import Tree
from sim.streams import uniforms
from tests.acceptance.helpers import build, walk, z_of_mean
from tests.acceptance.test_laws import CONFIGS

TREES = st.builds(
    lambda width, depth, share: Tree(width, depth, max(depth, round(share * most(width, depth)))),
    st.integers(1, 5),
    st.integers(1, 4),
    st.floats(0, 1),
)
SHAPES = [Tree(2, 3, 6), Tree(4, 3, 21), Tree(3, 2, 8), Tree(8, 5, 59)]
RATE = st.floats(0, 1)
TRACES: list[list[int]] = [[2, 1, 0, 3, 0, 0, 7, 1], [0, 0, 1], [5] * 9]


def most(width: int, depth: int) -> int:
    return width + (depth - 1) * width * width


def chances(rate: float, sibling: float, width: int) -> list[float]:
    """By the definition, candidate by candidate: what is left, times the chance of the next one."""
    found, left = [rate], 1 - rate
    for _ in range(width - 1):
        lower = min(sibling, rate / (1 - rate)) if rate < 1 else 0.0
        found.append(left * lower)
        left -= found[-1]
    return found


def drafted(tree: Tree, rate: float, sibling: float) -> list[float]:
    """Probabilities of all paths that are drafted: the likeliest ``width`` of a level are expanded."""
    p = chances(rate, sibling, tree.width)
    level, every = [1.0], list[float]()
    for _ in range(tree.depth):
        level = [above * below for above in nlargest(tree.width, level) for below in p]
        every += level
    return every


def all_paths(tree: Tree, rate: float, sibling: float) -> list[float]:
    """Probabilities of all paths, whatever a drafter would have to expand for them."""
    p = chances(rate, sibling, tree.width)
    return [prod(path) for depth in range(tree.depth) for path in product(p, repeat=depth + 1)]


def accepted(tree: Tree, path: Any) -> np.ndarray:
    """Drafts of the whole tree accepted from each output position."""
    return np.count_nonzero(path.reach(tree) <= tree.nodes, axis=1)


def held(tree: Tree, config: dict[str, Any], sibling: float) -> int:
    """Length of the chain of first candidates inside the tree."""
    base = build(tree.depth, **config).siblings.base()  # type: ignore[attr-defined]
    nodes = grow(tree, tuple(base.tolist()), sibling)
    below, length = 0, 0
    for node in nodes:
        if node.parent == below and node.rank == 0:
            below, length = node.number, length + 1
    return length


# -- laws ------------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(CONFIGS, TREES, RATE, st.integers(1, 60), st.integers(1, 400))
def test_a_tree_never_accepts_less_than_the_chain_inside_it(
    config: dict[str, Any], tree: Tree, sibling: float, n: int, prompt: int
) -> None:
    """Whatever the process, at every position, with the same luck."""
    path = build(6, sibling=sibling, **config).path(3, prompt, n)
    chain = np.minimum(path.run, held(tree, config, sibling))
    assert np.all(accepted(tree, path) >= chain)


@settings(max_examples=25, deadline=None)
@given(CONFIGS, TREES, RATE, st.integers(0, 20), st.integers(1, 60))
def test_more_nodes_accept_the_same_and_more(
    config: dict[str, Any], tree: Tree, sibling: float, more: int, n: int
) -> None:
    """A smaller tree of the same width and depth is what is left of a larger one cut to its nodes."""
    larger = Tree(tree.width, tree.depth, min(tree.nodes + more, most(tree.width, tree.depth)))
    path = build(5, sibling=sibling, **config).path(3, 7, n)
    cut = np.count_nonzero(path.reach(larger) <= tree.nodes, axis=1)
    np.testing.assert_array_equal(accepted(tree, path), cut)
    assert np.all(cut <= accepted(larger, path))


@settings(max_examples=20, deadline=None)
@given(CONFIGS, st.integers(1, 6), st.integers(1, 60))
def test_a_tree_of_width_one_is_the_chain(config: dict[str, Any], depth: int, n: int) -> None:
    """It needs no sibling rate and takes one node per draft."""
    path = build(6, **config).path(3, 7, n)
    reach = path.reach(Tree(1, depth, depth))
    np.testing.assert_array_equal(np.count_nonzero(reach <= depth, axis=1), np.minimum(path.run, depth))
    assert np.all((reach == np.arange(1, depth + 1)) | (reach == depth + 1))


@settings(max_examples=20, deadline=None)
@given(CONFIGS, TREES, RATE, st.integers(1, 40), st.integers(0, 40))
def test_a_longer_output_keeps_the_beginning_of_the_reach(
    config: dict[str, Any], tree: Tree, sibling: float, n: int, more: int
) -> None:
    """The first n positions do not depend on how many follow."""
    process = build(5, sibling=sibling, **config)
    short, long = process.path(3, 7, n).reach(tree), process.path(3, 7, n + more).reach(tree)
    np.testing.assert_array_equal(short, long[:n])


@settings(max_examples=100, deadline=None)
@given(TREES, st.lists(RATE, min_size=4, max_size=4), RATE)
def test_nodes_are_drafted_level_by_level_and_come_after_their_parents(
    tree: Tree, rates: list[float], sibling: float
) -> None:
    """EAGLE-2: at most ``width`` nodes of a level are expanded; a child is no likelier than its parent."""
    nodes = grow(tree, tuple(rates), sibling)
    assert [node.number for node in nodes] == list(range(1, tree.nodes + 1))
    level, likely, expanded = {0: 0}, {0: 1.0}, dict[int, set[int]]()
    for node in nodes:
        level[node.number], likely[node.number] = level[node.parent] + 1, node.probability
        assert node.probability <= likely[node.parent]
        expanded.setdefault(level[node.parent], set()).add(node.parent)
    assert max(level.values()) <= tree.depth
    assert all(len(parents) <= tree.width for parents in expanded.values())
    assert len({(node.parent, node.rank) for node in nodes}) == tree.nodes


# -- a second implementation -----------------------------------------------------------------------


@pytest.mark.parametrize("tree", SHAPES, ids=str)
@pytest.mark.parametrize(("rate", "sibling"), [(0.6, 0.35), (0.85, 0.5), (0.2, 0.9)])
def test_the_reach_is_a_walk_by_ranks(tree: Tree, rate: float, sibling: float) -> None:
    """Position by position: ranks follow from the chain's own draws, the walk from a set of paths."""
    n = 300
    path = build(tree.depth, process="iid", alpha=rate, sibling=sibling).path(2, 1, n)
    u = uniforms(1, "acceptance", 2, n + tree.depth)
    bounds = np.cumsum(chances(rate, sibling, tree.width)).tolist()
    nodes = grow(tree, (rate,) * tree.depth, sibling)
    path_of: dict[int, tuple[int, ...]] = {0: ()}
    for node in nodes:
        path_of[node.number] = (*path_of[node.parent], node.rank)
    known = set(path_of.values())
    for p, got in enumerate(accepted(tree, path)):
        ranks = [next((i for i, bound in enumerate(bounds) if x < bound), -1) for x in u[p : p + tree.depth]]
        expected = next((j for j in range(tree.depth) if tuple(ranks[: j + 1]) not in known), tree.depth)
        assert got == expected


def replayed(run: list[int], lower: Iterable[int], p: int, depth: int) -> list[int]:
    """Ranks of a round at ``p`` by the rule for recordings, one level at a time."""
    ranks, left, lower = [], run[p], list(lower)
    for level in range(depth):
        ranks.append(0 if left else lower[p + level])
        following = p + level + 1
        left = left - 1 if left else (run[following] if following < len(run) else 0)
    return ranks


def test_siblings_of_recorded_runs_go_on_as_a_round_there_would(tmp_path: Path) -> None:
    """Recorded runs decide where the first candidate fails; only then is a lower rank drawn."""
    file = tmp_path / "trace.jsonl"
    file.write_text("\n".join(f'{{"accepted": {run}}}' for run in TRACES))
    tree, n = Tree(3, 4, 12), 8
    process = build(7, process="trace", path=str(file), assign="in_order", sibling=0.4)
    nodes = grow(tree, tuple(process.siblings.base().tolist()), 0.4)  # type: ignore[attr-defined]
    path_of: dict[int, tuple[int, ...]] = {0: ()}
    for node in nodes:
        path_of[node.number] = (*path_of[node.parent], node.rank)
    left = uniforms(1, "acceptance/sibling", 0, n + tree.depth)
    lower = [1 if x > 0.6 else 2 if x > 0.36 else 3 for x in left]
    path = process.path(0, 5, n)
    for p, got in enumerate(accepted(tree, path)):
        ranks = replayed(path.run.tolist(), lower, p, tree.depth)
        known = [tuple(ranks[: j + 1]) in path_of.values() for j in range(tree.depth)]
        assert got == (known.index(False) if False in known else tree.depth)
    with pytest.raises(InputError, match="sibling: "):
        build(7, process="trace", path=str(file)).path(0, 5, n).reach(tree)


# -- closed forms ----------------------------------------------------------------------------------


@cache
def rounds_of(tree: Tree, rate: float, sibling: float) -> list[int]:
    """Drafts accepted in each round of a long generation."""
    path = build(tree.depth, process="iid", alpha=rate, sibling=sibling).path(0, 1, 60_000)
    return [found for _, found in walk(accepted(tree, path).tolist(), lambda *_: tree.depth)][:-1]


@pytest.mark.parametrize("tree", SHAPES, ids=str)
@pytest.mark.parametrize(("rate", "sibling"), [(0.55, 0.35), (0.8, 0.5), (0.3, 0.2)])
def test_accepted_drafts_are_the_sum_of_path_probabilities(tree: Tree, rate: float, sibling: float) -> None:
    """E[accepted] = sum over nodes of the product of their ranks' chances; realised and expected."""
    law = sum(nlargest(tree.nodes, drafted(tree, rate, sibling)))
    assert tokens_per_round(tree, (rate,) * tree.depth, sibling) - 1 == pytest.approx(law)
    assert abs(z_of_mean(rounds_of(tree, rate, sibling), law)) < 4
    if tree.width < 8:  # a third of a million paths take too long
        best = sum(nlargest(tree.nodes, all_paths(tree, rate, sibling)))
        assert 0.98 * best < law <= best + 1e-12


def test_ranks_are_found_as_often_as_the_sibling_rate_says() -> None:
    """a, (1 - a) s, (1 - a) (1 - s) s, ...: one level, four candidates."""
    tree, n = Tree(4, 1, 4), 50_000
    found = build(1, process="iid", alpha=0.5, sibling=0.3).path(0, 1, n).reach(tree)[:, 0]
    for number, law in enumerate((0.5, 0.15, 0.105, 0.0735), start=1):
        assert abs(z_of_mean((found == number).astype(float), law)) < 4


def test_no_candidate_is_likelier_than_one_ranked_before_it() -> None:
    """Where the first has chance 0.1, a sibling rate of 0.5 is cut to 1/9: 0.1 and 0.1 again."""
    found = build(1, process="iid", alpha=0.1, sibling=0.5).path(0, 1, 50_000).reach(Tree(2, 1, 2))[:, 0]
    for number in (1, 2):
        assert abs(z_of_mean((found == number).astype(float), 0.1)) < 4


@given(st.floats(0.2, 0.9), st.floats(0.05, 0.95))
def test_the_sibling_rate_follows_from_a_tree_s_length(rate: float, share: float) -> None:
    """``sibling_of`` undoes ``tokens_per_round``, up to the rate that the ranking allows."""
    tree, sibling = Tree(4, 3, 21), share * min(1.0, rate / (1 - rate))
    tokens = tokens_per_round(tree, (rate,) * 3, sibling)
    assert sibling_of(tree, (rate,) * 3, tokens) == pytest.approx(sibling, rel=1e-6)


@pytest.mark.parametrize("tokens", [1.8, 4.01])
def test_a_length_that_no_sibling_rate_gives_is_refused(tokens: float) -> None:
    """Less than the chain, or more than the depth allows."""
    with pytest.raises(InputError, match="cannot be had"):
        sibling_of(Tree(4, 3, 21), (0.5,) * 3, tokens)


def test_a_branching_tree_without_a_sibling_rate_is_refused() -> None:
    """The message says what to add."""
    with pytest.raises(InputError, match=r"add for example sibling: 0\.35"):
        build(3, process="iid", alpha=0.5).path(0, 1, 9).reach(Tree(2, 3, 6))
    assert Siblings(None, lambda: np.ones(3)).known(Tree(1, 3, 3)) == 0.0
