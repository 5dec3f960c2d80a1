"""What asks a router: which of the replicas that take requests now gets this one.

Routers that count (``sim.fleet.routers``) know what was sent and what came back; those here see what
engines report or remember what they sent where. Among equals the next in turn is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from sim.engine.batch import Sequence as Request
from sim.fleet.config import PrefixRule
from sim.fleet.routers import Router

Load = Callable[[int], float]
"""Share of its KV blocks that a replica holds, as far as the router has been told."""
Cached = Callable[[Request, int], int]
"""Tokens of a request that a replica's cache holds."""


class Chooser(Protocol):
    """Chooses among the replicas that take requests; one instance per run and stage."""

    def choose(self, request: Request, among: Sequence[int]) -> int:
        """One of ``among``, which is not empty and in order."""
        ...

    def forget(self, replica: int) -> None:
        """A replica stopped or failed, and its cache is lost."""
        ...


class Counting:
    """A router that counts, asked about some of the replicas only."""

    def __init__(self, router: Router, in_flight: Sequence[int]) -> None:
        self.router, self.in_flight = router, in_flight

    def choose(self, request: Request, among: Sequence[int]) -> int:
        """What the router says of the counts of those ``among``."""
        counts = [self.in_flight[replica] for replica in among]
        return among[self.router.choose(request.request, counts)]

    def forget(self, replica: int) -> None:
        """Nothing is remembered of a replica but its count."""


class Turn:
    """Takes turns among the best."""

    def __init__(self) -> None:
        self.last = -1

    def least(self, among: Sequence[int], key: Callable[[int], object]) -> int:
        """The one with the least key; among equals the first behind the one taken last."""
        behind = [replica for replica in among if replica > self.last]
        before = [replica for replica in among if replica <= self.last]
        self.last = min((*behind, *before), key=key)  # type: ignore[arg-type]
        return self.last


class LeastKv:
    """The replica with the smallest share of its KV blocks held, as reported; then the fewest in flight."""

    def __init__(self, load: Load, in_flight: Sequence[int]) -> None:
        self.load, self.in_flight, self.turn = load, in_flight, Turn()

    def choose(self, request: Request, among: Sequence[int]) -> int:
        """The emptiest by the last report."""
        return self.turn.least(among, lambda replica: (self.load(replica), self.in_flight[replica]))

    def forget(self, replica: int) -> None:
        """The next report will say."""


class PrefixAware:
    """The replica whose cache holds most of the prompt, unless the load is too uneven.

    The rule is that of SGLang's router (sgl-router/src/policies/cache_aware.rs at 026f853; defaults of
    ``balance_*`` and ``cache_threshold`` as in its ``router_args.py``): the least busy replica if the busiest
    has over ``balance_abs_threshold`` more requests in flight than the idlest and over
    ``balance_rel_threshold`` times as many; else the one that holds most of the prompt, if that is over
    ``cache_threshold`` of it; else the one that was sent the fewest different tokens. With ``sees: cached``
    the engines tell what they hold (as llm-d's precise prefix scorer learns from KV events), and a
    prompt that nobody holds goes to the least busy one. What was sent is never forgotten while a
    replica lives; SGLang's router forgets beyond 2^26 nodes.
    """

    def __init__(self, rule: PrefixRule, cached: Cached, in_flight: Sequence[int]) -> None:
        self.rule, self.cached, self.in_flight = rule, cached, in_flight
        self.sent: list[dict[int, int]] = [{} for _ in in_flight]
        """Of every replica, the longest prefix of every group that was sent to it, in tokens."""
        self.seen: list[set[int]] = [set() for _ in in_flight]
        """Hashed blocks sent to every replica, where prompts are told apart by hashes."""
        self.size = [0] * len(in_flight)
        """Different tokens sent to every replica."""
        self.turn = Turn()

    def choose(self, request: Request, among: Sequence[int]) -> int:
        """By the cache if the load allows it."""
        chosen = self._least_busy(among) if self._uneven(among) else self._by_cache(request, among)
        self._note(request, chosen)
        return chosen

    def forget(self, replica: int) -> None:
        """Its cache is lost, and what was sent there is worth nothing."""
        self.sent[replica], self.seen[replica], self.size[replica] = {}, set(), 0

    def _uneven(self, among: Sequence[int]) -> bool:
        counts = [self.in_flight[replica] for replica in among]
        most, least = max(counts), min(counts)
        rule = self.rule
        return most - least > rule.balance_abs_threshold and most > rule.balance_rel_threshold * least

    def _least_busy(self, among: Sequence[int]) -> int:
        return self.turn.least(among, self.in_flight.__getitem__)

    def _by_cache(self, request: Request, among: Sequence[int]) -> int:
        held = {replica: self._held(request, replica) for replica in among}
        if max(held.values()) > self.rule.cache_threshold * request.prompt_tokens:
            return self.turn.least(among, lambda replica: (-held[replica], self.in_flight[replica]))
        if self.rule.sees == "cached":
            return self._least_busy(among)
        return self.turn.least(among, self.size.__getitem__)

    def _held(self, request: Request, replica: int) -> int:
        if self.rule.sees == "cached":
            return self.cached(request, replica)
        if request.hashes:
            seen = self.seen[replica]
            known = next(
                (i for i, block in enumerate(request.hashes) if block not in seen), len(request.hashes)
            )
            return min(known * request.hash_block, request.prompt_tokens)
        return min(self.sent[replica].get(request.prefix_group, 0), request.prefix_tokens)

    def _note(self, request: Request, chosen: int) -> None:
        if self.rule.sees == "cached":
            return
        known = self._held(request, chosen)
        self.size[chosen] += request.prompt_tokens - known
        self.seen[chosen].update(request.hashes)
        if request.prefix_group >= 0 and request.prefix_tokens > known:
            self.sent[chosen][request.prefix_group] = request.prefix_tokens
