"""Continuous batching: which sequences run in this step, with how many tokens each.

The rules are vLLM's V1 scheduler (vllm/v1/core/sched/scheduler.py, 0.32): running sequences
first and in order, each with its known tokens and the drafts it carries, then waiting ones in
order of arrival, within a token budget and the free KV blocks; when blocks run out the last
running sequence is preempted, loses its KV and goes to the front of the queue, and nothing is
admitted in that step.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import islice

import numpy as np

from sim.acceptance.base import Path
from sim.engine.batch import (
    COMPUTED,
    DRAFT,
    FRESH,
    GRANTED,
    HELD,
    KNOWN,
    POINTER,
    REQUEST,
    TOKENS,
    Arena,
    Int64,
    RunningBatch,
    Sequence,
)
from sim.engine.config import EngineConfig
from sim.engine.kv import BlockPool
from sim.engine.prefix_cache import PrefixCache
from sim.errors import SimulationError


class Scheduler:
    """The waiting queue, the running batch and the KV pool of one replica.

    ``lookahead`` is the KV slots reserved beyond the scheduled tokens of every sequence,
    ``slots`` the budget tokens that each scheduled sequence costs on top of its own (the
    drafter's), ``state_blocks`` the blocks' worth of memory a sequence takes at any length.
    ``padding`` is the empty drafts of an admission that has one token to compute.
    ``draw`` gives a sequence its future when it is first admitted; none is longer than ``longest``
    tokens or carries more than ``max_depth`` drafts.
    """

    def __init__(
        self,
        config: EngineConfig,
        pool: BlockPool,
        arena: Arena,
        draw: Callable[[Sequence], Path],
        longest: int,
        max_depth: int = 0,
        lookahead: int = 0,
        slots: int = 0,
        state_blocks: int = 0,
        padding: int = 0,
    ) -> None:
        self.budget = config.max_num_batched_tokens
        self.max_num_seqs = config.max_num_seqs
        self.max_model_len = config.max_model_len
        self.chunk_limit = config.long_prefill_token_threshold
        self.block_size = config.block_size
        self.reaches_limit = longest + lookahead + 2 * max_depth >= config.max_model_len
        self.pool, self.arena, self.draw = pool, arena, draw
        self.cache = pool if isinstance(pool, PrefixCache) else None
        self.lookahead, self.slots, self.state_blocks = lookahead, slots, state_blocks
        self.padding = padding
        self.waiting: deque[Sequence] = deque()
        self.batch = RunningBatch(config.max_num_seqs)
        self.prefilling = 0
        """Running sequences that have not emitted since they were admitted."""
        self.uncut = True
        """Whether every running sequence got all it wanted in this step."""
        self.preempted: list[int] = []

    def schedule(self, now_ns: int) -> None:
        """Fill the GRANTED and KNOWN rows of the batch for one step."""
        self.preempted = []
        self.uncut = not self._chunked
        left = self._grant_running()
        if self.cache is not None:
            self.cache.keep(self.batch)
        if self.waiting and not self.preempted:
            self._admit(left, now_ns)

    def longest(self) -> int:
        """Tokens of the longest sequence of this step, its drafts included."""
        batch = self.batch
        return int(np.max((batch.row(COMPUTED) + batch.row(GRANTED)) * (batch.row(GRANTED) > 0), initial=0))

    # -- running sequences -------------------------------------------------------------------

    def _grant_running(self) -> int:
        """Grant tokens and blocks to the running batch; returns the budget left."""
        batch = self.batch
        if not batch.n:
            return self.budget
        want, left = self._cut_to_budget(self._wanted())
        held = batch.a[HELD, : batch.n]
        blocks = np.maximum(held, self._blocks_for(batch.a[COMPUTED, : batch.n] + want))
        if left < 0:
            blocks = np.where(want > 0, blocks, held)
        extra = int(np.add.reduce(blocks)) - self.pool.claims
        if extra > self.pool.free:
            return self._grant_under_pressure()
        batch.a[GRANTED, : batch.n] = want
        held[:] = blocks
        self.pool.take(extra)
        return left

    def _cut_to_budget(self, want: Int64) -> tuple[Int64, int]:
        """Grants in order while the budget lasts, and what is left of it (negative: something was cut)."""
        left = self.budget - int(np.add.reduce(want)) - self.slots * len(want)
        if left < 0:
            self.uncut = False
            before = np.cumsum(want + self.slots) - want
            want = np.minimum(want, np.maximum(self.budget - before, 0))
        return want, left

    def _wanted(self) -> Int64:
        """Known and draft tokens that each running sequence has to compute."""
        a, n = self.batch.a, self.batch.n
        known = a[KNOWN, :n]
        if self.prefilling:
            np.subtract(a[TOKENS, :n], a[COMPUTED, :n], out=known)
        else:
            known.fill(1)
        want = known + a[DRAFT, :n]
        if self._chunked:
            np.minimum(want, self.chunk_limit, out=want)
        if self.reaches_limit:
            np.minimum(want, self.max_model_len - 1 - a[COMPUTED, :n], out=want)
        return want

    @property
    def _chunked(self) -> bool:
        """Whether the chunk limit applies: never to a request that is alone."""
        return self.chunk_limit > 0 and self.batch.n + len(self.waiting) > 1

    def _blocks_for(self, tokens: Int64) -> Int64:
        """Blocks that hold ``tokens`` and the lookahead slots of each sequence."""
        round_up = self.block_size - 1
        slots = tokens + (self.lookahead + round_up)
        if self.reaches_limit:
            np.minimum(slots, self.max_model_len + round_up, out=slots)
        blocks: Int64 = slots // self.block_size
        return blocks + self.state_blocks if self.state_blocks else blocks

    def _grant_under_pressure(self) -> int:
        """Grant one by one, preempting from the end of the batch while blocks are short."""
        batch, left = self.batch, self.budget
        self.uncut = False
        wanted = self._wanted().tolist()
        batch.row(GRANTED).fill(0)
        i = 0
        while i < batch.n and left > self.slots:
            granted = min(wanted[i], left - self.slots)
            need = self._need(int(batch.a[COMPUTED, i]) + granted) - int(batch.a[HELD, i])
            while need > self.pool.free and batch.n > i:
                self._preempt_last()
            if batch.n == i:
                break
            batch.a[HELD, i] += max(need, 0)
            self.pool.take(max(need, 0))
            batch.a[GRANTED, i] = granted
            left -= granted + self.slots
            i += 1
        self.prefilling = int(batch.row(FRESH).sum())
        return left

    def _need(self, tokens: int) -> int:
        """Blocks of one sequence of ``tokens`` computed tokens, lookahead included."""
        slots = min(tokens + self.lookahead, self.max_model_len)
        return -(-slots // self.block_size) + self.state_blocks

    def _preempt_last(self) -> None:
        """Free the last running sequence's blocks and put it at the front of the queue."""
        batch = self.batch
        last = batch.n - 1
        sequence = self.release(last)
        sequence.preemptions += 1
        self.preempted.append(sequence.request)
        self.waiting.appendleft(sequence)

    # -- waiting sequences -------------------------------------------------------------------

    def _admit(self, left: int, now_ns: int) -> None:
        """Admit waiting sequences in order while budget, places and blocks last.

        The blocks must hold the whole known sequence, not the first chunk alone. One token that is
        left to compute is padded with empty drafts, beside decoding sequences alone; if those do not
        fit, nothing more is admitted (scheduler.py, ``pad_spec_decode``).
        """
        may_pad = self.padding > 0 and not self.prefilling
        beside = self.batch.n > 0
        while self.waiting and left > self.slots and self.batch.n < self.max_num_seqs:
            sequence = self.waiting[0]
            hits = self.cache.look_up(sequence) if self.cache is not None else []
            computed = len(hits) * self.block_size
            chunk = min(sequence.tokens - computed, left - self.slots)
            if self._chunked:
                chunk = min(chunk, self.chunk_limit)
            if may_pad and sequence.tokens - computed == 1 and (beside or computed):
                chunk += self._padding_at(computed)
                if chunk > left - self.slots:
                    break
            if not self._fits(sequence, computed + chunk, hits):
                break
            self.waiting.popleft()
            self._start(sequence, chunk, hits, now_ns)
            left -= chunk + self.slots
        if self.waiting and not self.batch.n:
            raise SimulationError(f"request {self.waiting[0].request} does not fit an empty replica")

    def _padding_at(self, computed: int) -> int:
        """Empty drafts of an admission with one token to compute, if the context has room for them."""
        return self.padding if computed + self.padding + 2 <= self.max_model_len else 0

    def _fits(self, sequence: Sequence, tokens: int, hits: list[int]) -> bool:
        """Whether free blocks hold all known tokens, and those scheduled; hits may be free blocks, too."""
        whole = -(-sequence.tokens // self.block_size) + self.state_blocks
        need = max(whole, self._need(tokens)) - len(hits)
        if self.cache is not None:
            need += self.cache.cost_of(hits)
        return need <= self.pool.free

    def _start(self, sequence: Sequence, chunk: int, hits: list[int], now_ns: int) -> None:
        computed = len(hits) * self.block_size
        need = self._need(computed + chunk)
        if self.cache is not None:
            self.cache.adopt(sequence, hits)
        self.pool.take(need - len(hits))
        if sequence.path is None:
            sequence.path = self.draw(sequence)
        pointer = self.arena.put(sequence.path, sequence.output_tokens)
        if sequence.scheduled_ns < 0:
            sequence.scheduled_ns = now_ns
        self.batch.append(sequence, pointer, chunk, need, computed, len(hits))
        self.prefilling += 1
        if computed + chunk > sequence.tokens:
            self.reject_next(pointer + sequence.produced)
        if self.cache is not None:
            self.cache.keep(self.batch)

    def reject_next(self, pointer: int) -> None:
        """Let a sequence's next round accept nothing: its drafts are no drafter's."""
        self.arena.thin(pointer, np.zeros(1, dtype=np.uint8))

    # -- the end of a step -------------------------------------------------------------------

    def release(self, index: int) -> Sequence:
        """Take a running sequence out and free what it held."""
        held, pointer = int(self.batch.a[HELD, index]), int(self.batch.a[POINTER, index])
        sequence = self.batch.remove(index)
        self.pool.release(sequence.request, held)
        self.arena.drop(pointer)
        return sequence

    def drop(self, request: int) -> bool:
        """Forget a request, running or waiting; whether it was here."""
        if request in self.batch.live:
            index = int(np.flatnonzero(self.batch.row(REQUEST) == request)[0])
            self.prefilling -= int(self.batch.a[FRESH, index])
            self.release(index)
            return True
        kept = [sequence for sequence in self.waiting if sequence.request != request]
        here = len(kept) < len(self.waiting)
        self.waiting = deque(kept)
        return here

    def prompt_tokens_ahead(self) -> int:
        """Prompt tokens that the next step will compute, as far as is known before it is scheduled."""
        batch, free = self.batch, self.pool.free * self.block_size
        left = batch.row(TOKENS) - batch.row(COMPUTED)
        ahead = int(left[left > 1].sum()) if self.prefilling else 0
        for sequence in islice(self.waiting, self.max_num_seqs - batch.n):
            if sequence.tokens > free or ahead >= self.budget:
                break
            free, ahead = free - sequence.tokens, ahead + sequence.tokens
        return max(min(ahead, self.budget - batch.n), 0)

    def check_integrity(self) -> None:
        """Raise ``SimulationError`` when memory, budget or positions contradict each other."""
        batch = self.batch
        self.pool.check_integrity(int(batch.row(HELD).sum()))
        if self.cache is not None:
            self.cache.check_batch(batch)
        if batch.n > self.max_num_seqs or int(batch.row(GRANTED).sum()) > self.budget:
            raise SimulationError(f"{batch.n} sequences or their tokens exceed the step's limits")
        if self.prefilling != int(batch.row(FRESH).sum()):
            raise SimulationError(f"{self.prefilling} sequences are said to prefill")
        if np.any(batch.row(COMPUTED) >= batch.row(TOKENS)) or len(batch.live) != batch.n:
            raise SimulationError("a running sequence has nothing left to compute")
