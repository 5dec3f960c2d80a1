"""Admission by reservation: blocks that requests are sure to get, before anybody new is admitted.

TensorRT-LLM's GUARANTEED_NO_EVICT reserves the whole answer of every request
(cpp/tensorrt_llm/batch_manager/capacityScheduler.cpp, 1.0), SGLang ``new_token_ratio`` of it
(python/sglang/srt/managers/schedule_policy.py, ``PrefillAdder``, 0.5): 0.7 at first, which falls to
0.098 over 600 decode steps without a retraction. Here the share is constant, and an answer is taken to
be as long as it will be, as for a client that asks for just that many tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sim.engine.batch import END, HELD, TOKENS, Int64, RunningBatch, Sequence


@dataclass(frozen=True)
class Reserve:
    """Blocks for ``share`` of every answer to come; with share 1 nothing is ever preempted.

    ``past_end`` is the slots beyond the output that the last drafts and the lookahead may take.
    """

    share: float
    block_size: int
    state_blocks: int
    past_end: int
    max_model_len: int

    def promised(self, batch: RunningBatch) -> int:
        """Blocks that running sequences do not hold yet and are sure to get."""
        tokens = batch.row(TOKENS)
        to_come = self._blocks(tokens, batch.row(END) - tokens)
        return int(np.maximum(to_come - batch.row(HELD), 0).sum())

    def wanted(self, sequence: Sequence) -> int:
        """Blocks that a waiting sequence will hold when the share of its answer is written."""
        left = sequence.output_tokens - sequence.produced
        return int(self._blocks(np.array([sequence.tokens]), np.array([left]))[0])

    def _blocks(self, tokens: Int64, left: Int64) -> Int64:
        written = tokens + np.ceil(self.share * left).astype(np.int64)
        slots = np.minimum(written + self.past_end, self.max_model_len)
        blocks: Int64 = -(-slots // self.block_size) + self.state_blocks
        return blocks
