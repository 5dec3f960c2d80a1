"""Draft trees: which candidates a static tree holds, and how far it reaches along an output.

At every output position the target's token is one of the drafter's ranked candidates, or none. It
is the first with the chain's chance ``a``; if it is none of the first i candidates, it is the next
one with chance ``sibling`` (at most a / (1 - a), so that no candidate is likelier than one ranked
before it). A round that starts at output position p walks down the tree by the ranks at p, p + 1,
... for as long as the node of that rank is there; a sibling's continuation has the next position's
own chance, as the first candidate's has.

The tree is static and the best one for the mean rates: of all paths, those with the highest
probability (Sequoia, arXiv 2402.12374, section 3.1; EAGLE-2, arXiv 2406.16858, reranks in the same
way by the drafter's confidences of the moment). Like EAGLE-2's, it is drafted level by level, and
only the ``width`` likeliest nodes of a level are expanded. Both papers quoted from memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.errors import InputError
from sim.policies.base import Tree

Floats = NDArray[np.float64]
Int64 = NDArray[np.int64]
Runs = NDArray[np.uint8]
Reach = NDArray[np.uint16]
"""``[p, j]``: nodes of the tree that must be verified for draft ``j`` (from 0) of a round at ``p`` to
be accepted, shape (output_tokens, depth); one more than the tree has where none is enough."""


class Node(NamedTuple):
    """One draft token: its number in order of probability (from 1), its parent's (0: root), its rank."""

    number: int
    parent: int
    rank: int
    probability: float


def child_chances(rate: float, sibling: float, width: int) -> Floats:
    """Chance that the target's token is candidate 0, 1, ... where the first has chance ``rate``."""
    lower = float(bounded(np.float64(rate), sibling))
    rest = (1 - rate) * lower * (1 - lower) ** np.arange(width - 1)
    return np.concatenate([[rate], rest])


def bounded(rate: Floats | np.float64, sibling: float) -> Floats | np.float64:
    """``sibling``, less where the candidate would otherwise be likelier than the one before it."""
    return np.minimum(sibling, rate / np.maximum(1 - rate, 1e-300))


@lru_cache(maxsize=64)
def grow(tree: Tree, rates: tuple[float, ...], sibling: float) -> tuple[Node, ...]:
    """The tree's nodes by falling probability, parents before their children.

    ``rates[j]`` is the first candidate's chance on level j, given the path to it.
    """
    frontier, drafted = [(1.0, -1)], list[tuple[float, int, int]]()
    for rate in rates[: tree.depth]:
        chances = child_chances(rate, sibling, tree.width).tolist()
        new = [(above * p, at, rank) for above, at in frontier for rank, p in enumerate(chances)]
        order = sorted(range(len(new)), key=lambda i: -new[i][0])[: tree.width]
        frontier = [(new[i][0], len(drafted) + i) for i in order]
        drafted += new
    kept = sorted(range(len(drafted)), key=lambda i: -drafted[i][0])[: tree.nodes]
    number = {-1: 0} | {at: i for i, at in enumerate(kept, start=1)}
    return tuple(_node(number[at], number, drafted[at]) for at in kept)


def _node(own: int, number: dict[int, int], drafted: tuple[float, int, int]) -> Node:
    probability, parent, rank = drafted
    return Node(own, number[parent], rank, probability)


def tokens_per_round(tree: Tree, rates: tuple[float, ...], sibling: float) -> float:
    """Mean tokens of a round, bonus included: 1 + the path probabilities of all nodes."""
    return 1 + sum(node.probability for node in grow(tree, rates, sibling))


def sibling_of(tree: Tree, rates: tuple[float, ...], tokens: float) -> float:
    """The sibling rate that makes a round of ``tree`` emit ``tokens``; ``InputError`` if none does."""
    from scipy.optimize import brentq  # late: most scenarios never need it

    least, most = (tokens_per_round(tree, rates, sibling) for sibling in (0.0, 1.0))
    if not least <= tokens <= most:
        raise InputError(
            f"{tokens:g} tokens per round cannot be had: a tree of {tree.nodes} nodes over a chain of "
            f"{least:.3g} gives {least:.3g} to {most:.3g}; check which tree and chain were measured"
        )
    return float(brentq(lambda s: tokens_per_round(tree, rates, s) - tokens, 0.0, 1.0, xtol=1e-12))


# -- along an output -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Siblings:
    """What a process knows about trees: the stated rate, if any, and the mean rates ``base()`` by depth."""

    rate: float | None
    base: Callable[[], Floats]

    def reach(self, tree: Tree, ranks: Iterable[Int64]) -> Reach:
        """Walk down the tree from every output position at once.

        ``ranks`` has, per level j, the rank of the target's token at p + j for each start p, at most
        ``width`` (no candidate), shape (output_tokens,).
        """
        children, at, levels = self._children(tree), np.int64(0), []
        for rank in ranks:
            at = children[at, rank]
            levels.append(at)
        return np.stack(levels, axis=1).astype(np.uint16)

    def _children(self, tree: Tree) -> Int64:
        """Number of the child of each rank; ``nodes + 1`` where there is none, and from there on."""
        nowhere = tree.nodes + 1
        children = np.full((nowhere + 1, tree.width + 1), nowhere, dtype=np.int64)
        for node in grow(tree, tuple(self.base().tolist()), self.known(tree)):
            children[node.parent, node.rank] = node.number
        return children

    def known(self, tree: Tree) -> float:
        """The stated rate; ``InputError`` if there is none and the tree branches."""
        if self.rate is None and tree.width > 1:
            raise InputError(
                "a tree policy needs the chance of lower-ranked candidates but acceptance states none; "
                "add for example sibling: 0.35"
            )
        return self.rate or 0.0


def lower_ranks(left: Floats, sibling: Floats | np.float64, width: int) -> Int64:
    """Ranks 1 to ``width`` of tokens that are not the first candidate; ``width``: none is it.

    ``left`` is uniform in (0, 1]; the smaller it is, the more candidates the token is not.
    """
    rank = np.ones(len(left), dtype=np.int64)
    for beaten in range(1, width):
        rank += left <= (1 - sibling) ** beaten
    return rank


def recorded_ranks(run: Runs, lower: Int64, depth: int) -> Iterator[Int64]:
    """Ranks where only run lengths are known, level by level.

    A round that starts at p meets first candidates for ``run[p]`` levels, then ``lower`` of that
    position, and behind a sibling it goes on as a round that started there would.
    """
    after = np.concatenate([run, np.zeros(depth + 1, dtype=np.int64)])
    left = after[: len(run)]
    for level in range(depth):
        behind = after[level + 1 : level + 1 + len(run)]
        yield np.where(left > 0, 0, lower[level : level + len(run)])
        left = np.where(left > 0, left - 1, behind)
