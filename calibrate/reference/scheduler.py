"""Continuous batching over slots: which sequences run in this step, with how many tokens each.

Running sequences first and in order, each with its known tokens and the drafts it carries, then
waiting ones in order, within the token budget and the places of the batch (vLLM's V1 scheduler,
vllm/v1/core/sched/scheduler.py, 0.32). Every place has a slot that holds the longest sequence, so
nothing is ever preempted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import islice

from calibrate.reference.plan import Plan
from calibrate.reference.sequence import Row, Sequence
from calibrate.reference.serving import Serving

Move = Callable[[int, int, Sequence], None]


class Scheduler:
    """The queue, and the running sequences in the order of admission.

    Running sequences hold the slots 0, 1, ... without a gap: ``move(source, to, sequence)`` is
    called for the one whose cache has to fill the place of a finished one.
    """

    def __init__(self, serving: Serving, move: Move) -> None:
        self.serving, self._move = serving, move
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []

    def schedule(self, now_ns: int) -> Plan:
        """Grant tokens for one step."""
        chunked = self._chunked  # before anything is admitted, as for the whole step
        rows, left = self._grant_running(chunked)
        rows += self._admit(left, chunked, now_ns)
        return Plan([row for row in rows if row.granted > 0], len(self.waiting))

    def _grant_running(self, chunked: bool) -> tuple[list[Row], int]:
        """Rows of the running sequences, and the budget left (negative when something was cut)."""
        left, rows = self.serving.max_num_batched_tokens, []
        for sequence in self.running:
            known = len(sequence.text) - sequence.computed
            wanted = self._limited(known + len(sequence.drafts), sequence, chunked)
            granted = min(wanted, max(left - self.serving.slots, 0))
            left -= wanted + self.serving.slots
            rows.append(Row(sequence, granted, known, sequence.computed))
        return rows, left

    def _limited(self, tokens: int, sequence: Sequence, chunked: bool) -> int:
        room = self.serving.max_model_len - 1 - sequence.computed
        limit = self.serving.chunk_limit if chunked else tokens
        return min(tokens, limit, room)

    def _admit(self, left: int, chunked: bool, now_ns: int) -> list[Row]:
        rows, slots = [], self.serving.slots
        while self.waiting and left > slots and len(self.running) < self.serving.max_num_seqs:
            sequence = self.waiting.popleft()
            known = len(sequence.text)
            chunk = min(known, left - slots, self.serving.chunk_limit if chunked else known)
            sequence.slot, sequence.scheduled_ns = len(self.running), now_ns
            self.running.append(sequence)
            rows.append(Row(sequence, chunk, known, 0))
            left -= chunk + slots
        return rows

    @property
    def _chunked(self) -> bool:
        """Whether the chunk limit applies: never to a request that is alone."""
        return self.serving.chunk_limit > 0 and len(self.running) + len(self.waiting) > 1

    def retire(self) -> list[Sequence]:
        """Take finished sequences out, the last admitted first, and close the gaps in the slots."""
        done = [sequence for sequence in reversed(self.running) if sequence.finished]
        for sequence in done:
            self.running.remove(sequence)
            last = max(self.running, key=lambda each: each.slot, default=sequence)
            if last.slot > sequence.slot:
                self._move(last.slot, sequence.slot, last)
                last.slot = sequence.slot
        return done

    def prompt_tokens_ahead(self) -> int:
        """Prompt tokens that the next step will compute, as far as is known before it is scheduled."""
        budget, running = self.serving.max_num_batched_tokens, len(self.running)
        left = [len(each.text) - each.computed for each in self.running]
        ahead = sum(tokens for tokens in left if tokens > 1)
        for sequence in islice(self.waiting, self.serving.max_num_seqs - running):
            if ahead >= budget:
                break
            ahead += len(sequence.text)
        return max(min(ahead, budget - running), 0)
