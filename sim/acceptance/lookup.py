"""Look-up drafters (n-gram, suffix): they propose nothing where nothing in the text matches.

Published acceptance of such drafters counts a step without a match as a rejection, while its cost
is that of plain decoding. ``match`` is the share of positions with a match: everywhere where a
draft would be accepted, and at as many others as make up the share.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sim.acceptance.base import AcceptanceProcess, Path
from sim.errors import InputError
from sim.policies.base import Tree
from sim.streams import uniforms_of

Int64 = NDArray[np.int64]
Runs = NDArray[np.uint8]


@dataclass(frozen=True)
class LookupPath:
    """Another path, with the positions at which the drafter finds something to propose."""

    inner: Path
    found: NDArray[np.bool_]

    @property
    def run(self) -> NDArray[np.uint8]:
        """Run lengths of the inner path."""
        return self.inner.run

    def reach(self, tree: Tree, /) -> NDArray[np.uint16]:
        """Reach of the inner path."""
        return self.inner.reach(tree)

    def confidence(self) -> NDArray[np.float32]:
        """Claims of the inner path."""
        return self.inner.confidence()


@dataclass(frozen=True)
class LookupProcess:
    """Another process, drafting only where there is a match."""

    inner: AcceptanceProcess
    seed: int
    in_vain: float
    """Share of the positions without an acceptable draft at which something is found all the same."""

    @property
    def max_depth(self) -> int:
        """Most drafts in a round."""
        return self.inner.max_depth

    def path(self, request: int, prompt_tokens: int, output_tokens: int) -> LookupPath:
        """Path of request number ``request``."""
        path = self.inner.path(request, prompt_tokens, output_tokens)
        return LookupPath(path, self.matches(np.array([request]), path.run, np.array([output_tokens])))

    def matches(self, requests: Int64, run: Runs, output_tokens: Int64) -> NDArray[np.bool_]:
        """Where something is found, of several requests end to end, shape as their ``run``."""
        luck = uniforms_of(self.seed, "acceptance/match", requests.tolist(), output_tokens)
        return (run > 0) | (luck < self.in_vain)

    def expected_tokens_per_round(self, depth: int) -> float:
        """Tokens per round, rounds without a match included."""
        return self.inner.expected_tokens_per_round(depth)


def with_match(process: AcceptanceProcess, match: float, seed: int) -> LookupProcess:
    """Drafts only at a share ``match`` of the positions; ``InputError`` if fewer than are accepted."""
    accepted = process.expected_tokens_per_round(1) - 1
    if match < accepted:
        raise InputError(
            f"acceptance.match is {match:g}, but the first draft is accepted at {accepted:.3g} of all "
            "positions; match is the share of positions with any proposal, so it cannot be less"
        )
    in_vain = (match - accepted) / (1 - accepted) if accepted < 1 else 0.0
    return LookupProcess(process, seed, in_vain)
