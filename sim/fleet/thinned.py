"""The future of a request whose drafter lacks the prompt's KV: fewer drafts are accepted."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sim.acceptance.base import Path
from sim.acceptance.paths import leading_runs
from sim.engine.batch import Sequence
from sim.policies.base import Tree
from sim.streams import uniforms


class Thinned:
    """A path in which every draft that would be accepted is kept with probability 1 - ``loss``.

    Draws depend on (seed, request, output position) alone. What the drafter claims stays what it was:
    it does not know what it lacks.
    """

    def __init__(self, path: Path, sequence: Sequence, seed: int, loss: float, depth: int) -> None:
        count, depth = sequence.output_tokens, max(depth, 1)
        draws = uniforms(seed, "acceptance/draft_kv", sequence.request, count + depth)
        self.path, self.most = path, leading_runs(draws, np.full(depth, 1 - loss), count)

    @property
    def run(self) -> NDArray[np.uint8]:
        """Drafts accepted from each position."""
        return np.minimum(self.path.run, self.most)

    @property
    def found(self) -> NDArray[np.bool_] | None:
        """Positions at which the drafter has anything to propose."""
        return self.path.found

    def reach(self, tree: Tree, /) -> NDArray[np.uint16]:
        """Nodes of a tree that must be verified; those lost are never reached."""
        reach = self.path.reach(tree).copy()
        reach[np.arange(tree.depth) >= self.most[:, None]] = tree.nodes + 1
        return reach

    def confidence(self) -> NDArray[np.float32]:
        """Claims of the drafter."""
        return self.path.confidence()
