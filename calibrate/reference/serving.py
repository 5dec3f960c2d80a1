"""How the reference engine serves: the limits of a step, and what it does around the policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Serving:
    """Limits and habits; the names are those of the simulator's engine settings.

    ``longest`` is the longest prompt with its output; ``slots`` are budget tokens that a scheduled
    sequence costs on top of its own; ``chunk_limit`` is the largest prefill chunk (0: none).
    ``tpot_limits_ns`` has one entry per request class (0: none). ``pad_queries`` says how the queries
    of unequal rows are counted; what attention does with them is the layout's business.
    """

    max_num_seqs: int
    max_num_batched_tokens: int
    longest: int
    max_model_len: int
    max_depth: int = 0
    chunk_limit: int = 0
    slots: int = 0
    draft_at_depth_zero: bool = True
    draft_over_scheduled: bool = True
    draft_for_finished: bool = True
    draft_uniformly: bool = True
    draft_past_end: bool = True
    pad_queries: bool = False
    tpot_limits_ns: tuple[int, ...] = (0,)

    @property
    def slot_tokens(self) -> int:
        """Cache positions of one sequence.

        Behind the longest text there is room for drafts, for passes that the drafter runs for a
        finished sequence, and for what rows padded to the widest one write.
        """
        return self.longest + 3 * (self.max_depth + 2)


@dataclass(frozen=True)
class Request:
    """One request; ``output_tokens`` is its exact length, no token ends it earlier."""

    number: int
    arrival_ns: int
    prompt: Sequence[int]
    output_tokens: int
    class_id: int = 0
