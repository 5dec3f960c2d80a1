"""A second, slow implementation of vLLM 0.32's V1 scheduler, to referee the fast one.

One object per request, no vector, no cleverness: the rules were read in vLLM 0.32 and written
again in our own words, and each docstring names the file it was read in.  The engine modelled is
the synchronous one that recorded `shared/vllm_cpu/recorded` (first come first served, one group
of full-attention KV blocks, V1 model runner, no connector, no encoder).  Prefix caching is by
content: every token has a name, and a block is known by its own and all earlier tokens.

Counts are tokens, KV blocks or requests; the clock of `replay` is in seconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

LOOKAHEAD_BEYOND_DEPTH: Final = {"draft_model": 0, "eagle": 0, "eagle3": 0, "mtp": 0, "dflash": 1}
"""Drafters that write KV ahead of the target, and the slots they need beyond the depth."""


HIDDEN_STATE_DRAFTERS: Final = ("eagle", "eagle3", "mtp", "dflash")
"""Drafters that read the target's hidden states (`use_eagle`): the last block hit is dropped."""


@dataclass(frozen=True)
class ReferenceConfig:
    """What the scheduler is told at start (vllm/config/scheduler.py, cache.py, speculative.py)."""

    block_size: int
    num_blocks: int
    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int = 512
    drafter: str = "off"
    depth: int = 0
    depth_table: tuple[tuple[int, int, int], ...] = ()
    drafter_max_model_len: int | None = None
    long_prefill_threshold: int = 0
    long_prefill_threshold_adaptive: bool = False
    whole_sequence_must_fit: bool = True
    watermark: float = 0.0
    prefix_caching: bool = False
    greedy: bool = False

    @property
    def draft_slots(self) -> int:
        """Input slots each scheduled request loses to its drafter.

        A separate draft model keeps the token that EAGLE-like drafters shift out, so it has one
        more input per request (vllm/config/speculative.py, `max_num_new_slots_for_drafting`).
        """
        return {"draft_model": 1, "dflash": self.depth}.get(self.drafter, 0)

    @property
    def lookahead(self) -> int:
        """KV slots reserved past the scheduled tokens, the greatest depth whatever the table says.

        Read in vllm/config/vllm.py, `num_lookahead_tokens`: zero for drafters without KV.
        """
        beyond = LOOKAHEAD_BEYOND_DEPTH.get(self.drafter)
        return 0 if beyond is None else self.depth + beyond

    @property
    def watermark_blocks(self) -> int:
        """Blocks that an admission must leave free (vllm/v1/core/kv_cache_manager.py)."""
        return int(self.watermark * self.num_blocks)

    def depth_for(self, num_scheduled: int) -> int:
        """Depth of the next drafts when this many requests are scheduled now, prefills included.

        A gap or the tail of the table keeps the depth of the range before it
        (vllm/v1/spec_decode/dynamic/utils.py).
        """
        if not self.depth_table or num_scheduled == 0:
            return self.depth
        reached = [row for row in sorted(self.depth_table) if row[0] <= num_scheduled]
        return min(self.depth, reached[-1][2])


@dataclass(eq=False)
class Block:
    """One KV block: what it holds, if that is cached (a number for all tokens so far), and for whom."""

    chain: int | None = None
    holders: int = 0


@dataclass(eq=False)
class Request:
    """One sequence; `computed` counts tokens whose KV is written or being written."""

    request_id: int
    prompt: int
    output_len: int
    produced: int = 0
    computed: int = 0
    drafts: int = 0
    dummy: bool = False
    table: list[Block] = field(default_factory=list)
    cached: int = 0
    prefilling: bool = False
    group: int | None = None
    shared: int = 0
    answered_alike: bool = False

    @property
    def blocks(self) -> int:
        """Blocks it holds."""
        return len(self.table)

    def token(self, position: int) -> tuple[str, int, int]:
        """Name of one token: its prefix group's, or its own."""
        if self.group is not None and position < min(self.shared, self.prompt):
            return ("group", self.group, position)
        if self.group is not None and self.answered_alike and self.prompt <= self.shared:
            return (f"answer to {self.group}", self.prompt, position)
        return ("own", self.request_id, position)

    @property
    def num_tokens(self) -> int:
        """Tokens whose content is final: prompt and produced, drafts excluded."""
        return self.prompt + self.produced


@dataclass
class Budget:
    """The two limits of one step: scheduled tokens, and inputs of the drafter's first pass.

    Both start at `max_num_batched_tokens`; each scheduled request also costs `slots` of the
    second (vllm/v1/core/sched/scheduler.py, `schedule`).
    """

    tokens: int
    inputs: int
    slots: int

    @property
    def is_open(self) -> bool:
        """Whether one more request can get a token."""
        return self.tokens > 0 and self.inputs > self.slots

    @property
    def limit(self) -> int:
        """The most tokens the next request can get."""
        return min(self.tokens, self.inputs - self.slots)

    def spend(self, tokens: int) -> None:
        """Charge one scheduled request."""
        self.tokens -= tokens
        self.inputs -= tokens + self.slots


@dataclass
class Step:
    """What one call of `schedule` decided, in scheduling order.

    `empty` has the requests whose drafts are no drafter's, so that no target would accept them.
    """

    scheduled: dict[int, int] = field(default_factory=dict)
    drafts: dict[int, int] = field(default_factory=dict)
    empty: set[int] = field(default_factory=set)
    preempted: list[int] = field(default_factory=list)
    next_depth: int = 0
    waiting: int = 0
    longest: int = 0
    had_prefill: bool = False

    @property
    def num_tokens(self) -> int:
        """The T of the step."""
        return sum(self.scheduled.values())


class ReferenceScheduler:
    """vLLM's `schedule`, `update_from_output` and `update_draft_token_ids`, by counts alone."""

    def __init__(self, config: ReferenceConfig) -> None:
        self.config = config
        self.requests: dict[int, Request] = {}
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        # Block 0 is the null block (block_pool.py).
        self.free = deque(Block() for _ in range(config.num_blocks - 1))
        self.cache: dict[int, list[Block]] = {}
        self._chains: dict[tuple[int, tuple[tuple[str, int, int], ...]], int] = {}
        self._step = Step()
        self._budget = Budget(0, 0, 0)
        self._threshold = 0

    @property
    def free_blocks(self) -> int:
        """Blocks that nobody holds, cached ones included."""
        return len(self.free)

    def add(
        self, request_id: int, prompt: int, output_len: int, group: int | None = None, shared: int = 0
    ) -> None:
        """Put a new request at the tail of the waiting queue."""
        alike = self.config.greedy
        request = Request(request_id, prompt, output_len, group=group, shared=shared, answered_alike=alike)
        self.requests[request_id] = request
        self.waiting.append(request)

    def abort(self, request_id: int) -> None:
        """Forget a request whose client went away (scheduler.py, `finish_requests`)."""
        request = self.requests.pop(request_id)
        if request in self.running:
            self.running.remove(request)
        else:
            self.waiting.remove(request)
        self._release(request)

    def schedule(self) -> Step:
        """Share one step's budget: running requests first, then admissions if nobody lost its KV.

        Read in vllm/v1/core/sched/scheduler.py, `schedule` and `_update_after_schedule`.
        """
        limit = self.config.max_num_batched_tokens
        self._step = Step()
        self._budget = Budget(limit, limit, self.config.draft_slots)
        self._threshold = self._long_prefill_threshold()
        self._schedule_running()
        if not self._step.preempted:
            self._admit_waiting()
        return self._close_step()

    def update(self, new_tokens: Mapping[int, int], proposals: Mapping[int, int] | None = None) -> list[int]:
        """Take what the step sampled, then the drafts for the next one; return who finished.

        `new_tokens` has accepted + 1 for each scheduled request whose prefill is complete, and
        `proposals` what an n-gram drafter found.  Tokens past the output length or
        `max_model_len` are dropped (scheduler.py, `update_from_output`; utils.py, `check_stop`).
        """
        expected = {i for i in self._step.scheduled if not self.requests[i].prefilling}
        if set(new_tokens) != expected:
            raise ValueError(
                f"new tokens were given for {sorted(new_tokens)}, "
                f"but this step samples for {sorted(expected)}"
            )
        finished = [i for i, count in new_tokens.items() if self._append(self.requests[i], count)]
        for request_id in finished:
            request = self.requests.pop(request_id)
            self.running.remove(request)
            self._release(request)
        self._take_drafts(proposals or {})
        return finished

    def check_integrity(self) -> None:
        """Raise AssertionError if blocks leak or a count is out of its range."""
        holders: dict[int, int] = {}
        for request in self.requests.values():
            for block in request.table:
                holders[id(block)] = holders.get(id(block), 0) + 1
                assert block.holders, block
        assert len(holders) + self.free_blocks == self.config.num_blocks - 1
        assert all(holders[id(b)] == b.holders for r in self.requests.values() for b in r.table)
        assert all(not block.holders for block in self.free)
        assert len(self.running) <= self.config.max_num_seqs, len(self.running)
        assert len(self.running) + len(self.waiting) == len(self.requests)
        for request in self.waiting:
            assert request.blocks == request.computed == request.drafts == 0, request
        for request in self.running:
            assert 0 < request.computed <= request.blocks * self.config.block_size, request
            assert request.num_tokens < self.config.max_model_len, request

    def _long_prefill_threshold(self) -> int:
        """Cap of one request's tokens in this step, 0 for none; a lone request has no cap."""
        alive = len(self.running) + len(self.waiting)
        threshold = self.config.long_prefill_threshold if alive > 1 else 0
        if threshold and self.config.long_prefill_threshold_adaptive:
            return max(threshold, self.config.max_num_batched_tokens // alive)
        return threshold

    def _capped(self, tokens: int) -> int:
        """Apply the long-prefill cap, then what is left of the budget."""
        if 0 < self._threshold < tokens:
            tokens = self._threshold
        return min(tokens, self._budget.limit)

    def _schedule_running(self) -> None:
        """Give each running request all it can use, in order, until the budget or the KV ends."""
        index = 0
        while index < len(self.running) and self._budget.is_open:
            request = self.running[index]
            tokens = self._running_share(request)
            if not self._make_room(request, tokens):
                return
            self._step.had_prefill |= request.prefilling
            self._grant(request, tokens, request.computed + tokens - request.num_tokens)
            index += 1

    def _running_share(self, request: Request) -> int:
        """What it has left to compute, drafts last; never zero here, as it is below the limit.

        The last position of the context is kept for the token to be sampled.
        """
        tokens = self._capped(request.num_tokens + request.drafts - request.computed)
        return min(tokens, self.config.max_model_len - request.computed - 1)

    def _make_room(self, request: Request, tokens: int) -> bool:
        """Allocate, preempting the youngest running request until it fits or is itself out."""
        while not self._allocate(request, tokens):
            victim = self.running.pop()
            self._preempt(victim)
            if victim is request:
                return False
        return True

    def _preempt(self, victim: Request) -> None:
        """Send back to the head of the queue, without KV or drafts (`_preempt_request`)."""
        self._release(victim)
        victim.computed, victim.drafts, victim.dummy = 0, 0, False
        self.waiting.appendleft(victim)
        self._step.preempted.append(victim.request_id)

    def _admit_waiting(self) -> None:
        """Admit from the head of the queue until a request does not fit; nobody overtakes it."""
        beside = bool(self._step.scheduled)
        while self._can_admit:
            request = self.waiting[0]
            hits = self._hits(request)
            computed = len(hits) * self.config.block_size
            tokens = request.num_tokens - computed
            may_pad = not self._step.had_prefill and bool(beside or computed)
            padding = self._padding(computed) if may_pad and tokens == 1 else 0
            if padding and tokens + padding > self._budget.limit:
                return
            tokens = self._capped(tokens + padding)
            if not self._fits_whole(request, hits):
                return
            if not self._allocate(request, tokens, self._headroom, hits):
                return
            request.computed, request.dummy = computed, padding > 0
            self.running.append(self.waiting.popleft())
            self._grant(request, tokens, padding)

    @property
    def _can_admit(self) -> bool:
        """Whether there is a request to admit, a token to give it and a seat."""
        seat = len(self.running) < self.config.max_num_seqs
        return bool(self.waiting) and self._budget.is_open and seat

    def _padding(self, computed: int) -> int:
        """Empty drafts given to an admission with one token to compute, so that it looks like a decode.

        Only with a static depth, and beside requests that were already running, none of them in
        mid-prefill, or after a cache hit; the engine rejects them all (scheduler.py,
        `pad_spec_decode`).
        """
        depth = self.config.depth
        if self.config.depth_table:
            return 0
        return depth if computed + depth + 2 <= self.config.max_model_len else 0

    def _hits(self, request: Request) -> list[Block]:
        """The longest run of full blocks in the cache; the last token is always computed anew.

        Of equal blocks the one cached first is taken.  Read in kv_cache_manager.py,
        `get_computed_blocks`, and single_type_kv_cache_manager.py,
        `FullAttentionManager.find_longest_cache_hit`.
        """
        hits: list[Block] = []
        if self.config.prefix_caching:
            for chain in self._chain(request, (request.num_tokens - 1) // self.config.block_size):
                if not self.cache.get(chain):
                    break
                hits.append(self.cache[chain][0])
        return hits[:-1] if self.config.drafter in HIDDEN_STATE_DRAFTERS else hits

    def _chain(self, request: Request, blocks: int) -> list[int]:
        """A number for the content of each of the first blocks and all before it."""
        size, chain, parent = self.config.block_size, [], -1
        for start in range(0, blocks * size, size):
            tokens = tuple(request.token(position) for position in range(start, start + size))
            parent = self._chains.setdefault((parent, tokens), len(self._chains))
            chain.append(parent)
        return chain

    @property
    def _headroom(self) -> int:
        """Watermark of an admission, which counts only beside running requests."""
        return self.config.watermark_blocks if self.running else 0

    def _fits_whole(self, request: Request, hits: list[Block]) -> bool:
        """Whether all the tokens known so far would fit, lookahead not counted.

        Read in kv_cache_manager.py, `full_sequence_must_fit`; on by default.
        """
        if not self.config.whole_sequence_must_fit:
            return True
        slots = min(request.num_tokens, self.config.max_model_len)
        return self._missing(request, slots, hits) + self._headroom <= self.free_blocks

    def _missing(self, request: Request, slots: int, hits: list[Block]) -> int:
        """Free blocks to take to have this many slots; a block is kept when drafts fail.

        A hit that nobody holds is taken from the free ones, too (`get_num_blocks_to_allocate`).
        """
        missing = max(-(-slots // self.config.block_size) - request.blocks - len(hits), 0)
        return missing + sum(not block.holders for block in hits)

    def _allocate(
        self, request: Request, tokens: int, headroom: int = 0, hits: list[Block] | None = None
    ) -> bool:
        """Take the blocks for these tokens and the lookahead, or nothing (`allocate_slots`)."""
        hits = hits or []
        computed = request.computed + len(hits) * self.config.block_size
        slots = min(computed + tokens + self.config.lookahead, self.config.max_model_len)
        if self._missing(request, slots, hits) + headroom > self.free_blocks:
            return False
        for block in hits:
            if not block.holders:
                self.free.remove(block)
            block.holders += 1
        request.table += hits
        request.cached += len(hits)
        while request.blocks * self.config.block_size < slots:
            request.table.append(self._new_block())
        if self.config.prefix_caching:
            self._cache_full(request, min(computed + tokens, request.num_tokens))
        return True

    def _new_block(self) -> Block:
        """Take the head of the free list, which forgets what it held (block_pool.py, `get_new_blocks`)."""
        block = self.free.popleft()
        if block.chain is not None:
            self.cache[block.chain].remove(block)
            block.chain = None
        block.holders = 1
        return block

    def _cache_full(self, request: Request, tokens: int) -> None:
        """Cache the blocks full of tokens that are final (`cache_full_blocks`); equal ones stay apart."""
        full = tokens // self.config.block_size
        for place, chain in enumerate(self._chain(request, full)):
            if place >= request.cached:
                request.table[place].chain = chain
                self.cache.setdefault(chain, []).append(request.table[place])
        request.cached = max(request.cached, full)

    def _release(self, request: Request) -> None:
        """Give every block back, the last first.

        Blocks without content go to the head of the free list, cached ones to its tail
        (block_pool.py, `free_blocks`).
        """
        empty = []
        for block in reversed(request.table):
            block.holders -= 1
            if not block.holders:
                (empty if block.chain is None else self.free).append(block)
        self.free.extendleft(reversed(empty))
        request.table, request.cached = [], 0

    def _grant(self, request: Request, tokens: int, drafts: int) -> None:
        """Note the decision; the drafts that did not fit in `tokens` are forgotten."""
        self._budget.spend(tokens)
        self._step.scheduled[request.request_id] = tokens
        if drafts > 0:
            self._step.drafts[request.request_id] = drafts
            if request.dummy:
                self._step.empty.add(request.request_id)
        request.drafts, request.dummy = 0, False

    def _close_step(self) -> Step:
        """Count scheduled tokens as computed at once, and look up the next depth."""
        step = self._step
        for request_id, tokens in step.scheduled.items():
            request = self.requests[request_id]
            request.computed += tokens
            request.prefilling = request.computed < request.num_tokens
            step.longest = max(step.longest, request.computed)
        step.next_depth = self.config.depth_for(len(step.scheduled))
        step.waiting = len(self.waiting)
        return step

    def _append(self, request: Request, count: int) -> bool:
        """Roll back the rejected drafts, append the tokens, and say whether it is finished."""
        drafts = self._step.drafts.get(request.request_id, 0)
        if not 1 <= count <= drafts + 1:
            raise ValueError(f"request {request.request_id} sampled {count} tokens after {drafts} drafts")
        request.computed -= drafts - (count - 1)
        room = self.config.max_model_len - request.num_tokens
        left = min(request.output_len - request.produced, room)
        request.produced += min(count, left)
        return count >= left

    def _take_drafts(self, proposals: Mapping[int, int]) -> None:
        """Give drafts to each request scheduled in this step that has done its prefill.

        The others keep what they had.  Near the end of the context the drafter does not run and
        the whole batch gets full-depth dummy drafts (vllm/v1/worker/gpu_model_runner.py,
        `_input_fits_in_drafter` and `sample_tokens`).
        """
        for request_id in self._step.scheduled:
            request = self.requests.get(request_id)
            if request is not None and self.config.depth:
                request.drafts = 0 if request.prefilling else self._drafts_for(request, proposals)
                request.dummy = request.drafts > 0 and not self.drafter_fits

    @property
    def drafter_fits(self) -> bool:
        """Whether the drafter can run in this step without leaving its context."""
        room = self.config.drafter_max_model_len or self.config.max_model_len
        return self._step.longest + self.config.depth + (self.config.drafter == "dflash") <= room

    def _drafts_for(self, request: Request, proposals: Mapping[int, int]) -> int:
        """How many drafts one decoding request of this step gets."""
        if not self.drafter_fits:
            return self.config.depth
        if self.config.drafter != "ngram":
            return self._step.next_depth
        found = proposals.get(request.request_id, 0)
        return min(found, self._step.next_depth, self.config.max_model_len - request.num_tokens)


@dataclass(frozen=True)
class Difference:
    """One thing the reference and the recording disagree on."""

    where: str
    what: str
    recorded: object
    reference: object


def config_of(recorded: Mapping[str, Any]) -> ReferenceConfig:
    """Translate a recorded configuration (tests/referee/draw.py; older ones lack some keys)."""
    spec = recorded["spec"]
    return ReferenceConfig(
        block_size=recorded["block_size"],
        num_blocks=recorded["num_gpu_blocks"],
        max_num_seqs=recorded["max_num_seqs"],
        max_num_batched_tokens=recorded["max_num_batched_tokens"],
        drafter=recorded.get("drafter", "draft_model") if spec in ("static", "table") else spec,
        max_model_len=recorded.get("max_model_len", 512),
        long_prefill_threshold=recorded.get("long_prefill_threshold", 0),
        prefix_caching=recorded["prefix_caching"],
        greedy=spec == "off",  # synthetic acceptance changes the answer
        depth=recorded.get("k", 0),
        depth_table=tuple((low, high, depth) for low, high, depth in recorded.get("table", [])),
    )


def step_seconds(recorded: Mapping[str, Any], tokens: int, next_depth: int, drafter_ran: bool) -> float:
    """The modelled time of one step; only a drafter that is a model is charged for drafting."""
    a, b, d0, d1, d2 = recorded["clock"]
    is_model = recorded["spec"] in ("static", "table") and recorded.get("drafter") != "ngram"
    drafting = d0 + d1 * tokens + d2 * max(0, next_depth - 1) if is_model and drafter_ran else 0
    return float((a + b * tokens + drafting) / 1e3)


def replay(recording: Mapping[str, Any]) -> list[Difference]:
    """Feed a recording's arrivals and sampled counts; return the differences of the first bad step.

    After the first difference the two runs are no longer about the same thing, so it stops there.
    """
    return _Replay(recording).run()


class _Replay:
    """The loop of `fuzz_record.py` around the reference, compared step by step."""

    def __init__(self, recording: Mapping[str, Any]) -> None:
        self.recording = recording
        self.config: Mapping[str, Any] = recording["config"]
        self.arrivals: list[list[Any]] = self.config["requests"]
        self.aborts = deque((time, request) for request, time in self.config.get("aborts", []))
        self.scheduler = ReferenceScheduler(config_of(recording["config"]))
        self.clock = 0.0
        self.arrived = 0
        self.times: dict[int, list[Any]] = {}
        self.proposals = _next_drafts(recording["steps"])

    def run(self) -> list[Difference]:
        """Replay to the end or to the first step that differs."""
        for index, recorded in enumerate(self.recording["steps"]):
            differences = self._one_step(index, recorded)
            if differences:
                return differences
        rounded = [self.times.get(i, [None, None, 0]) for i in range(len(self.arrivals))]
        return _compare("requests", {"times": (self.recording["requests"], rounded)})

    def _one_step(self, index: int, recorded: list[Any]) -> list[Difference]:
        self._arrive()
        step = self.scheduler.schedule()
        ran = self.scheduler.drafter_fits
        self.clock += step_seconds(self.config, step.num_tokens, step.next_depth, ran)
        pairs = {
            "clock": (recorded[0], round(self.clock, 7)),
            "tokens": (recorded[1], step.num_tokens),
            "next depth": (recorded[2], step.next_depth),
            "scheduled": (_ordered(recorded[3]), list(step.scheduled.items())),
            "drafts": (_ordered(recorded[4]), list(step.drafts.items())),
            "preempted": (sorted(recorded[6]), sorted(step.preempted)),
            "waiting": (recorded[7], step.waiting),
        }
        if len(recorded) > 8:
            held = self.scheduler.config.num_blocks - 1 - self.scheduler.free_blocks
            pairs["held blocks"] = (recorded[8], held)
        differences = _compare(f"step {index}", pairs)
        if not differences:
            self._sample(index, dict(_ordered(recorded[5])))
        return differences

    def _arrive(self) -> None:
        """Jump an idle clock to the next arrival, then let clients come and go, until one is there."""
        if not self.scheduler.requests and self.clock < self.arrivals[self.arrived][0]:
            self.clock = self.arrivals[self.arrived][0]
        self._send_due()
        while self.aborts and self.aborts[0][0] <= self.clock:
            request = self.aborts.popleft()[1]
            if request in self.scheduler.requests:
                self.scheduler.abort(request)
        self._send_due()
        if not self.scheduler.requests:
            self._arrive()

    def _send_due(self) -> None:
        most = self.config.get("max_concurrency") or len(self.arrivals)
        while self._next_has_come and len(self.scheduler.requests) < most:
            _, prompt, output_len, *group = self.arrivals[self.arrived]
            shared = self.config.get("shared_tokens", 64)
            self.scheduler.add(self.arrived, prompt, output_len, *group, shared=shared)
            self.arrived += 1

    @property
    def _next_has_come(self) -> bool:
        return self.arrived < len(self.arrivals) and self.arrivals[self.arrived][0] <= self.clock

    def _sample(self, index: int, new_tokens: dict[int, int]) -> None:
        """Feed the recorded counts and note first-token and finish times."""
        for request_id, count in new_tokens.items():
            times = self.times.setdefault(request_id, [round(self.clock, 7), None, 0])
            times[2] += count
        for request_id in self.scheduler.update(new_tokens, self.proposals[index]):
            self.times[request_id][1] = round(self.clock, 7)
        self.scheduler.check_integrity()


def _ordered(by_request: Mapping[str, int]) -> list[tuple[int, int]]:
    return [(int(request_id), count) for request_id, count in by_request.items()]


def _compare(where: str, pairs: Mapping[str, tuple[object, object]]) -> list[Difference]:
    return [Difference(where, what, *pair) for what, pair in pairs.items() if pair[0] != pair[1]]


def _next_drafts(steps: list[list[Any]]) -> list[dict[int, int]]:
    """For each step, the drafts with which each request was scheduled the next time it was.

    It stands in for what an n-gram drafter found, which depends on the tokens themselves; a
    proposal that the budget cut is seen cut, which schedules the same.
    """
    following: dict[int, int] = {}
    proposals: list[dict[int, int]] = []
    for recorded in reversed(steps):
        proposals.append(dict(following))
        following |= {int(request_id): recorded[4].get(request_id, 0) for request_id in recorded[3]}
    return proposals[::-1]
