"""Acceptance as run lengths: which drafts would survive, at every output position.

For each request there is one path, fixed by (seed, request) alone and never by the policy. All
sources (parametric processes, recorded traces) end in this one form, so every policy meets the
same luck and a clairvoyant oracle is well defined.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sim.policies.base import Tree


class Path(Protocol):
    """One request's future."""

    @property
    def run(self) -> NDArray[np.uint8]:
        """Drafts that would be accepted from each position, shape (output_tokens,).

        ``run[p]``, at most ``max_depth``, is for a round that starts when ``p`` output tokens
        exist; its first draft is for output position ``p``, counted from 0.
        """
        ...

    @property
    def found(self) -> NDArray[np.bool_] | None:
        """Positions at which the drafter has anything to propose; ``None``: at all of them."""
        ...

    def reach(self, tree: Tree, /) -> NDArray[np.uint16]:
        """Nodes of a tree that must be verified for its drafts to be accepted, shape (output_tokens, depth).

        ``[p, j]`` is for draft ``j`` of a round started at ``p``; more than ``tree.nodes``: never.
        ``InputError`` where nothing says how good lower-ranked candidates are.
        """
        ...

    def confidence(self) -> NDArray[np.float32]:
        """Claims of the drafter, shape (output_tokens, max_depth).

        ``[p, j]`` is the claimed probability that draft ``j`` (from 0) of a round started at
        ``p`` is accepted, given that the drafts before it are.
        """
        ...


class AcceptanceProcess(Protocol):
    """Draws paths; deterministic in (seed, request). Implementations are immutable."""

    @property
    def max_depth(self) -> int:
        """Most drafts in a round; the cap of every run."""
        ...

    def path(self, request: int, prompt_tokens: int, output_tokens: int) -> Path:
        """Path of request number ``request``, the same at every call."""
        ...

    def expected_tokens_per_round(self, depth: int) -> float:
        """Mean tokens a round of ``depth`` drafts emits, bonus token included.

        Over the rounds of long requests of equal output: total tokens over total rounds.
        """
        ...
