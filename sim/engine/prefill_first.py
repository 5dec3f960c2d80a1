"""Prompts first: steps that compute prompts alone, while the sequences that decode wait.

SGLang runs a prefill batch whenever one can be made (python/sglang/srt/managers/scheduler.py,
``get_next_batch_to_run``, 0.5), vLLM's V0 engine without chunked prefill likewise
(vllm/core/scheduler.py, ``_schedule_default``, up to 0.9). With mixed chunks SGLang joins decodes to the
prompts; while it speculated it did not: python/sglang/srt/server_args.py, 0.4, turns
``enable_mixed_chunk`` off for EAGLE, and later versions did so for other drafters (pull request 35300). A
most of prefill steps in a row is proposed there as ``--max-consecutive-prefill-batches`` (pull request
32775).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.engine.batch import COMPUTED, FIRST, FRESH, GRANTED, TOKENS, Int64, Sequence
from sim.engine.scheduler import Scheduler


class PrefillFirst(Scheduler):
    """A scheduler whose steps are either prefill steps or decode steps.

    A prefill step goes on with the prompts that are begun, then admits others; it is taken as long as it
    computes anything, at most ``most_in_a_row`` times while sequences decode (0: no limit). Sequences
    that come back from host memory decode at once, so they are admitted in decode steps.
    """

    def __init__(self, *arguments: Any, most_in_a_row: int = 0, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.most_in_a_row = most_in_a_row
        self.in_a_row = 0
        self.prompts_alone = False
        """Whether the step at hand is a prefill step."""

    def _share_step(self, now_ns: int) -> None:
        """A prefill step if there is one to take, else a decode step."""
        self.prompts_alone = self._may_prefill()
        if self.prompts_alone:
            super()._share_step(now_ns)
            if np.any(self.batch.row(GRANTED)):
                self.in_a_row += 1
                return
        self.prompts_alone, self.in_a_row = False, 0
        super()._share_step(now_ns)

    def _may_prefill(self) -> bool:
        """Whether prompts come before decodes in this step."""
        if not self.prefilling and not self.waiting:
            return False
        spent = 0 < self.most_in_a_row <= self.in_a_row
        return not spent or not np.any(~self._prompts())

    def _prompts(self) -> NDArray[np.bool_]:
        """Running sequences with prompt left to compute; what comes back from the host has one token left."""
        batch = self.batch
        several = batch.row(TOKENS) - batch.row(COMPUTED) > 1
        prompts: NDArray[np.bool_] = (batch.row(FRESH) > 0) & (several | (batch.row(FIRST) < 0))
        return prompts

    def _wanted(self) -> Int64:
        want = super()._wanted()
        if not self.prefilling and not self.prompts_alone:
            return want
        return np.where(self._prompts() == self.prompts_alone, want, 0)

    def _is_due(self, sequence: Sequence) -> bool:
        return (sequence.kept_tokens == 0) == self.prompts_alone
