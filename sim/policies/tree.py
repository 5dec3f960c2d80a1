"""``tree``: the same draft tree for every sequence in every step.

Rule of EAGLE-2 and EAGLE-3 in SGLang (``--speculative-num-steps`` k, ``--speculative-eagle-topk``
width, ``--speculative-num-draft-tokens``, which counts the root too, so nodes + 1;
python/sglang/srt/speculative/eagle_worker.py, draft_forward, read in part): the drafter makes k passes.
The first proposes ``width`` candidates; each further one expands the ``width`` likeliest candidates
of the level before by ``width`` each. Of all that were drafted, the ``nodes`` with the highest path
probability are verified in one pass. Granularity: fixed for the run. Inputs: none.

Theirs ranks by the drafter's probabilities of the moment. Ours is static: the best tree for the mean
acceptance by depth and the ``sibling`` rate of ``acceptance`` (as Sequoia's, arXiv 2402.12374, without
its choice of the size by hardware). So it gains nothing from stretches of different difficulty. In
tables ``depth`` counts nodes, and wasted drafts are all nodes off the accepted path.
"""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from sim.policies.base import Batch, Depths, PolicyDefaults, Tree
from sim.policies.config import Bounds, PolicyConfig


class TreeDrafts(PolicyDefaults):
    """One tree, always."""

    def __init__(self, tree: Tree) -> None:
        self.tree: Tree | None = tree
        self.nodes = tree.nodes

    def draft_depths(self, batch: Batch) -> Depths:
        """All nodes."""
        return self.nodes


class TreeConfig(PolicyConfig):
    """Fixed draft tree of k levels, width children a node (EAGLE-2, SGLang ``--speculative-eagle-topk``)."""

    policy: Literal["tree"]
    width: int = Field(ge=1, le=64, description="candidates of a node, and nodes expanded on a level")
    k: int = Field(ge=1, le=64, description="levels of the tree: drafter passes per step")
    nodes: int | None = Field(
        default=None, ge=1, le=1024, description="draft tokens verified per sequence; default: all candidates"
    )

    @model_validator(mode="after")
    def _nodes_among_candidates(self) -> Self:
        most = min(self._candidates, 1024)
        if not self.k <= self.verified <= most:
            levels = f"{self.k} levels of width {self.width}"
            raise ValueError(f"nodes is {self.verified}; {levels} take from {self.k} to {most}")
        return self

    @property
    def _candidates(self) -> int:
        """Nodes that are drafted: the first level, then ``width`` expanded nodes on each."""
        return self.width + (self.k - 1) * self.width**2

    def build(self, bounds: Bounds) -> TreeDrafts:
        """The policy; where the engine allows fewer tokens, the likeliest nodes are kept."""
        return TreeDrafts(Tree(self.width, self.k, min(self.verified, bounds.max_depth)))

    @property
    def depth(self) -> int:
        """Levels of the tree, which the drafter must reach."""
        return self.k

    @property
    def verified(self) -> int:
        """Nodes of the tree."""
        return self.nodes or self._candidates
