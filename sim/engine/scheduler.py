"""Continuous batching: which sequences run in this step, with how many tokens each.

The rules are vLLM's V1 scheduler (vllm/v1/core/sched/scheduler.py, 0.32): running sequences
first and in order, each with its known tokens and the drafts it carries, then waiting ones in
order of arrival, within a token budget and the free KV blocks; when blocks run out the last
running sequence is preempted, loses its KV and goes to the front of the queue, and nothing is
admitted in that step. Where other engines differ, a switch of ``Behaviour`` says so.
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
    PROMPT,
    REQUEST,
    TOKENS,
    Arena,
    Int64,
    RunningBatch,
    Sequence,
)
from sim.engine.config import EngineConfig
from sim.engine.host_memory import HostMemory
from sim.engine.integrity import check_scheduler
from sim.engine.kv import BlockPool
from sim.engine.prefix_cache import PrefixCache
from sim.engine.reserve import Reserve
from sim.errors import SimulationError


class Scheduler:
    """The waiting queue, the running batch and the KV pool of one replica.

    ``lookahead`` is the KV slots reserved beyond the scheduled tokens of every sequence,
    ``slots`` the budget tokens that each scheduled sequence costs on top of its own (the
    drafter's), ``state_blocks`` the blocks' worth of memory a sequence takes at any length.
    ``padding`` is the empty drafts of an admission that has one token to compute. With ``host``
    memory, preempted sequences keep their KV there.
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
        host: HostMemory | None = None,
    ) -> None:
        behaviour = config.behaviour
        self.budget = config.max_num_batched_tokens
        self.max_num_seqs = config.max_num_seqs
        self.max_model_len = config.max_model_len
        self.chunk_limit = config.long_prefill_token_threshold if behaviour.chunked_prefill else 0
        self.whole_prompts = not behaviour.chunked_prefill
        self.fewest_first = behaviour.victim == "fewest_output"
        self.to_back = behaviour.requeue == "back"
        self.block_size = config.block_size
        self.reaches_limit = longest + lookahead + 2 * max_depth >= config.max_model_len
        self.pool, self.arena, self.draw = pool, arena, draw
        self.cache = pool if isinstance(pool, PrefixCache) else None
        self.lookahead, self.slots, self.state_blocks = lookahead, slots, state_blocks
        self.reserve = self._reserve(behaviour.reserved_output, max_depth)
        self.padding = padding
        self.host = host
        self.waiting: deque[Sequence] = deque()
        self.batch = RunningBatch(config.max_num_seqs)
        self.prefilling = 0
        """Running sequences that have not emitted since they were admitted."""
        self.uncut = True
        """Whether every running sequence got all it wanted in this step."""
        self.preempted: list[int] = []
        self.transfer_ns = 0
        """What moving KV between host and device adds to the step."""

    def schedule(self, now_ns: int) -> None:
        """Fill the GRANTED and KNOWN rows of the batch for one step."""
        self.preempted = []
        self.uncut = not self._chunked
        self._share_step(now_ns)
        if self.host is not None:
            self.transfer_ns = self.host.transfer_ns()

    def _share_step(self, now_ns: int) -> None:
        """Running sequences first, then waiting ones, unless somebody was preempted."""
        left = self._grant_running()
        if self.cache is not None:
            self.cache.keep(self.batch)
        if self.waiting and not self.preempted:
            self._admit(left, now_ns)

    def longest(self) -> int:
        """Tokens of the longest sequence of this step, its drafts included."""
        batch = self.batch
        return int(np.max((batch.row(COMPUTED) + batch.row(GRANTED)) * (batch.row(GRANTED) > 0), initial=0))

    def _reserve(self, share: float, max_depth: int) -> Reserve | None:
        """What running and new sequences are promised of their answers' blocks; nothing by default."""
        past_end = max_depth + self.lookahead
        if not share:
            return None
        return Reserve(share, self.block_size, self.state_blocks, past_end, self.max_model_len)

    # -- running sequences -------------------------------------------------------------------

    def _grant_running(self) -> int:
        """Grant tokens and blocks to the running batch; returns the budget left."""
        batch = self.batch
        if not batch.n:
            return self.budget
        while True:
            want, left = self._cut_to_budget(self._wanted())
            held = batch.a[HELD, : batch.n]
            blocks = np.maximum(held, self._blocks_for(batch.a[COMPUTED, : batch.n] + want))
            if left < 0:
                blocks = np.where(want > 0, blocks, held)
            extra = int(np.add.reduce(blocks)) - self.pool.claims
            if extra <= self.pool.free:
                break
            if not self.fewest_first:
                return self._grant_one_by_one()
            self._preempt(self._who_produced_least())
        batch.a[GRANTED, : batch.n] = want
        held[:] = blocks
        self.pool.take(extra)
        return left

    def _cut_to_budget(self, want: Int64) -> tuple[Int64, int]:
        """Grants in order while the budget lasts, and what is left of it (negative: something was cut)."""
        taking = int(np.count_nonzero(want)) if self.slots else 0
        left = self.budget - int(np.add.reduce(want)) - self.slots * taking
        if left < 0:
            self.uncut = False
            before = np.cumsum(want + self.slots * (want > 0)) - want
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

    def _grant_one_by_one(self) -> int:
        """Grant in order, preempting from the end of the batch while blocks are short."""
        batch, left = self.batch, self.budget
        self.uncut = False
        wanted = self._wanted().tolist()
        batch.row(GRANTED).fill(0)
        i = 0
        while i < batch.n and left > self.slots:
            if not wanted[i]:
                i += 1
                continue
            granted = min(wanted[i], left - self.slots)
            need = self._need(int(batch.a[COMPUTED, i]) + granted) - int(batch.a[HELD, i])
            while need > self.pool.free and batch.n > i:
                self._preempt(batch.n - 1)
            if batch.n == i:
                break
            batch.a[HELD, i] += max(need, 0)
            self.pool.take(max(need, 0))
            batch.a[GRANTED, i] = granted
            left -= granted + self.slots
            i += 1
        return left

    def _who_produced_least(self) -> int:
        """The running sequence with the fewest output tokens, of those the one with the longest prompt.

        SGLang's order (python/sglang/srt/managers/schedule_batch.py, ``retract_decode``, 0.5); of equals
        the last one.
        """
        prompts = self.batch.row(PROMPT)
        order = np.lexsort((-np.arange(self.batch.n), -prompts, self.batch.row(TOKENS) - prompts))
        return int(order[0])

    def _need(self, tokens: int) -> int:
        """Blocks of one sequence of ``tokens`` computed tokens, lookahead included."""
        slots = min(tokens + self.lookahead, self.max_model_len)
        return -(-slots // self.block_size) + self.state_blocks

    def _preempt(self, index: int) -> None:
        """Free a running sequence's blocks and put it back into the queue; a host may keep its KV."""
        computed = int(self.batch.a[COMPUTED, index])
        self.uncut = False
        self.prefilling -= int(self.batch.a[FRESH, index])
        sequence = self.release(index)
        sequence.preemptions += 1
        self.preempted.append(sequence.request)
        if self.host is not None and computed == sequence.tokens - 1:
            sequence.kept_tokens = computed if self.host.take(self.host_blocks(computed)) else 0
        if self.to_back and not sequence.kept_tokens:
            self.waiting.append(sequence)
        else:
            self.waiting.appendleft(sequence)

    def host_blocks(self, kept_tokens: int) -> int:
        """Host blocks that a sequence with so many tokens of KV takes, its recurrent state included."""
        return -(-kept_tokens // self.block_size) + self.state_blocks if kept_tokens else 0

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
            if not self._is_due(sequence):
                break
            hits, computed = self._found(sequence)
            chunk = min(sequence.tokens - computed, left - self.slots)
            if self.whole_prompts and self._too_long(sequence.tokens - computed, left):
                break
            if self._chunked:
                chunk = min(chunk, self.chunk_limit)
            if may_pad and sequence.tokens - computed == 1 and (beside or computed):
                chunk += self._padding_at(computed)
                if chunk > left - self.slots:
                    break
            if not self._fits(sequence, computed + chunk, hits):
                break
            self.waiting.popleft()
            self._start(sequence, chunk, hits, computed, now_ns)
            left -= chunk + self.slots
        if self.waiting and not self.batch.n and self._is_due(self.waiting[0]):
            raise SimulationError(f"request {self.waiting[0].request} does not fit an empty replica")

    def _is_due(self, sequence: Sequence) -> bool:
        """Whether this step may admit the sequence."""
        return True

    def _found(self, sequence: Sequence) -> tuple[list[int], int]:
        """Cached blocks of a waiting sequence, and its tokens whose KV need not be computed."""
        if sequence.kept_tokens or self.cache is None:
            return [], sequence.kept_tokens
        hits = self.cache.look_up(sequence)
        return hits, len(hits) * self.block_size

    def _too_long(self, tokens: int, left: int) -> bool:
        """Whether a prompt has to wait for a step with more budget left.

        One that has outgrown the whole budget, after a preemption, is computed in pieces all the same.
        """
        return left - self.slots < tokens <= self.budget - self.slots

    def _padding_at(self, computed: int) -> int:
        """Empty drafts of an admission with one token to compute, if the context has room for them."""
        return self.padding if computed + self.padding + 2 <= self.max_model_len else 0

    def _fits(self, sequence: Sequence, tokens: int, hits: list[int]) -> bool:
        """Whether free blocks hold all known tokens, and those scheduled; hits may be free blocks, too."""
        whole = -(-sequence.tokens // self.block_size) + self.state_blocks
        need = max(whole, self._need(tokens))
        if self.reserve is not None:
            need = max(need, self.reserve.wanted(sequence)) + self.reserve.promised(self.batch)
        if self.cache is not None:
            need += self.cache.cost_of(hits)
        return need - len(hits) <= self.pool.free

    def _start(self, sequence: Sequence, chunk: int, hits: list[int], computed: int, now_ns: int) -> None:
        need = self._need(computed + chunk)
        if sequence.kept_tokens and self.host is not None:
            self.host.bring_back(self.host_blocks(sequence.kept_tokens))
            sequence.kept_tokens = 0
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
        gone = [sequence for sequence in self.waiting if sequence.request == request]
        self.waiting = deque(sequence for sequence in self.waiting if sequence.request != request)
        if self.host is not None:
            self.host.drop(sum(self.host_blocks(sequence.kept_tokens) for sequence in gone))
        return bool(gone)

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
        """Raise ``SimulationError`` when memory, budget, positions or the queue contradict each other."""
        check_scheduler(self)
