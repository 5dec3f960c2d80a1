"""A second, plain implementation of how engines other than vLLM's V1 share a step.

One object per request, no vector: the rules in our own words, from what each engine does
(sim/engine/prefill_first.py, reserve.py and host_memory.py name the files). No prefix caching.
Counts are tokens and KV blocks; the caller keeps the clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil
from typing import Literal


@dataclass(frozen=True)
class Rules:
    """What one engine does, and its limits; ``host_blocks`` is None without swapping."""

    budget: int
    max_num_seqs: int
    block_size: int
    blocks: int
    depth: int = 0
    lookahead: int = 0
    slots: int = 0
    prompts_first: bool = False
    most_in_a_row: int = 0
    whole_prompts: bool = False
    reserved_output: float = 0.0
    host_blocks: int | None = None
    victim: Literal["last", "fewest_output"] = "last"
    requeue: Literal["front", "back"] = "front"


@dataclass(eq=False)
class Request:
    """One sequence; ``new`` until it emits for the first time since it was admitted."""

    number: int
    prompt: int
    output: int
    produced: int = 0
    computed: int = 0
    drafts: int = 0
    held: int = 0
    on_host: int = 0
    new: bool = True

    @property
    def tokens(self) -> int:
        """Prompt and output so far."""
        return self.prompt + self.produced

    @property
    def left(self) -> int:
        """Known tokens that are not computed."""
        return self.tokens - self.computed

    @property
    def is_prompt(self) -> bool:
        """Whether it still reads its prompt; the last token of one that has emitted before is a decode."""
        return self.new and (self.left > 1 or self.produced == 0)


@dataclass
class Step:
    """What one step computes, in order: request number to tokens, and to drafts among them."""

    tokens: dict[int, int] = field(default_factory=dict)
    drafts: dict[int, int] = field(default_factory=dict)
    preempted: list[int] = field(default_factory=list)
    moved: int = 0


class PlainScheduler:
    """Decides one step after the other."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        self.free = rules.blocks
        self.host_free = rules.host_blocks or 0
        self.in_a_row = 0
        self.step = Step()
        self.left = 0

    # -- a step ------------------------------------------------------------------------------

    def schedule(self) -> Step:
        """The next step."""
        self.step = Step()
        if not self.rules.prompts_first:
            self._share(lambda request: True)
            return self.step
        decodes = [r for r in self.running if not r.is_prompt]
        spent = 0 < self.rules.most_in_a_row <= self.in_a_row
        if not (spent and decodes):
            self._share(lambda request: request.on_host == 0 and (request.held == 0 or request.is_prompt))
            if self.step.tokens:
                self.in_a_row += 1
                return self.step
        self.in_a_row = 0
        self._share(lambda request: request.on_host > 0 or (request.held > 0 and not request.is_prompt))
        return self.step

    def update(self, emitted: dict[int, int]) -> list[int]:
        """Take what the step emitted (drafts kept and one token more); the numbers of who finished."""
        finished = []
        for request in list(self.running):
            if request.number not in self.step.tokens:
                continue
            drafts = self.step.drafts.get(request.number, 0)
            request.computed += self.step.tokens[request.number] - drafts
            request.drafts = 0
            if request.computed < request.tokens:
                continue
            count = min(emitted[request.number], request.output - request.produced)
            request.produced += count
            request.computed = request.tokens - 1
            request.new = False
            request.drafts = self.rules.depth
            if request.produced == request.output:
                finished.append(request.number)
                self.running.remove(request)
                self._give(request)
        return finished

    def emits(self) -> list[Request]:
        """Who emits in this step: all whose known tokens are computed by it."""
        known = {n: t - self.step.drafts.get(n, 0) for n, t in self.step.tokens.items()}
        return [r for r in self.running if r.number in known and known[r.number] == r.left]

    # -- sharing -----------------------------------------------------------------------------

    def _share(self, takes_part) -> None:  # type: ignore[no-untyped-def]
        """Running requests that take part, in order, then waiting ones, unless one was preempted."""
        self.left = self.rules.budget
        if self.rules.victim == "fewest_output":
            while not self._all_fit(takes_part):
                least = min(self.running, key=lambda r: (r.produced, -r.prompt, -self.running.index(r)))
                self._preempt(least)
        for request in list(self.running):
            if request not in self.running or not takes_part(request):
                continue
            if self.left <= self.rules.slots:
                break
            grant = min(request.left + request.drafts, self.left - self.rules.slots)
            while request in self.running and self._missing(request, grant) > self.free:
                self._preempt(self.running[-1])
            if request not in self.running:
                break
            self._grant(request, grant)
        if not self.step.preempted:
            self._admit(takes_part)

    def _all_fit(self, takes_part) -> bool:  # type: ignore[no-untyped-def]
        """Whether all that would be granted fits into free blocks."""
        left, missing = self.rules.budget, 0
        for request in filter(takes_part, self.running):
            grant = min(request.left + request.drafts, left - self.rules.slots)
            if grant <= 0:
                break
            missing += self._missing(request, grant)
            left -= grant + self.rules.slots
        return missing <= self.free

    def _admit(self, takes_part) -> None:  # type: ignore[no-untyped-def]
        while self.waiting and self.left > self.rules.slots and len(self.running) < self.rules.max_num_seqs:
            request = self.waiting[0]
            if not takes_part(request):
                return
            left = request.tokens - request.on_host
            grant = min(left, self.left - self.rules.slots)
            if self.rules.whole_prompts and grant < left <= self.rules.budget - self.rules.slots:
                return
            if self._wanted(request, request.on_host + grant) > self.free:
                return
            self.running.append(self.waiting.pop(0))
            if request.on_host:
                self.step.moved += self._blocks(request.on_host)
                self.host_free += self._blocks(request.on_host)
            request.computed, request.on_host, request.new, request.drafts = request.on_host, 0, True, 0
            self._grant(request, grant)

    def _grant(self, request: Request, tokens: int) -> None:
        missing = max(self._missing(request, tokens), 0)
        request.held += missing
        self.free -= missing
        drafts = max(tokens - request.left, 0)
        self.step.tokens[request.number] = tokens
        if drafts:
            self.step.drafts[request.number] = drafts
        self.left -= tokens + self.rules.slots

    # -- memory ------------------------------------------------------------------------------

    def _blocks(self, tokens: int) -> int:
        return ceil(tokens / self.rules.block_size)

    def _missing(self, request: Request, tokens: int) -> int:
        return self._blocks(request.computed + tokens + self.rules.lookahead) - request.held

    def _wanted(self, request: Request, computed: int) -> int:
        """Free blocks that an admission asks for: its own, and what running ones are promised."""
        own = max(self._blocks(request.tokens), self._blocks(computed + self.rules.lookahead))
        if not self.rules.reserved_output:
            return own
        promised = sum(max(self._later(r) - r.held, 0) for r in self.running)
        return max(own, self._later(request)) + promised

    def _later(self, request: Request) -> int:
        """Blocks once the reserved share of the answer is written, with the last drafts."""
        share = ceil(self.rules.reserved_output * (request.output - request.produced))
        return self._blocks(request.tokens + share + self.rules.depth + self.rules.lookahead)

    def _preempt(self, request: Request) -> None:
        """Out of the batch; its KV to the host if it decodes and there is room, else lost."""
        self.running.remove(request)
        self._give(request)
        self.step.preempted.append(request.number)
        self.step.tokens.pop(request.number, None)
        decodes = request.left == 1
        room = self.rules.host_blocks is not None and self._blocks(request.computed) <= self.host_free
        request.on_host = request.computed if decodes and room else 0
        if request.on_host:
            self.host_free -= self._blocks(request.on_host)
            self.step.moved += self._blocks(request.on_host)
        request.computed = request.drafts = 0
        if self.rules.requeue == "back" and not request.on_host:
            self.waiting.append(request)
        else:
            self.waiting.insert(0, request)

    def _give(self, request: Request) -> None:
        self.free += request.held
        request.held = 0
