"""Holes in the drafter's KV: what a step without drafting costs the sequences that live through it.

vLLM V0 ran no drafter in a step that ``--speculative-disable-by-batch-size`` switched off, so the
drafter's KV missed that step's tokens and its later drafts were accepted less often
(vllm/spec_decode, up to 0.9). How much less is the policy's ``acceptance_loss``. An engine that
runs the drafter at depth 0, too (``draft_at_depth_zero``), has no holes.
"""

from __future__ import annotations

import numpy as np

from sim.acceptance.paths import leading_runs
from sim.engine.batch import END, GRANTED, HOLED, POINTER, PROMPT, REQUEST, TOKENS, Arena, RunningBatch
from sim.streams import uniforms


class Holes:
    """Thins the future runs of sequences, once each.

    Every draft that would have been accepted is kept with probability 1 - ``loss``, by a draw of its
    output position: whichever step makes the hole, the same drafts are lost. A sequence that is
    preempted and admitted again is whole, for its drafter KV is rebuilt with the target's.
    """

    def __init__(self, batch: RunningBatch, arena: Arena, seed: int, loss: float, depth: int) -> None:
        self.batch, self.arena, self.seed = batch, arena, seed
        self.kept = np.full(depth, 1 - loss)

    def punch(self) -> None:
        """Thin what the running sequences that were in the step have yet to draft."""
        batch = self.batch
        whole = (batch.row(GRANTED) > 0) & (batch.row(HOLED) == 0)
        for index in np.flatnonzero(whole).tolist():
            self._thin(batch.a[:, index].tolist())
        batch.row(HOLED)[whole] = 1

    def _thin(self, column: list[int]) -> None:
        """Keep, from every position to come, the drafts before the first that is lost."""
        produced, left = column[TOKENS] - column[PROMPT], column[END] - column[TOKENS]
        draws = uniforms(self.seed, "acceptance/holes", column[REQUEST], produced + left + len(self.kept))
        self.arena.thin(column[POINTER], leading_runs(draws[produced:], self.kept, left))
