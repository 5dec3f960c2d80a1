"""The requests of one run, drawn before it starts: every policy sees the same ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sim.errors import SimulationError
from sim.workload.hashes import PromptHashes

Int64 = NDArray[np.int64]


@dataclass(frozen=True)
class Requests:
    """Arrays of one entry per request, in order of intended arrival.

    ``arrival_ns`` is the *intended* arrival (integer nanoseconds from the start of the run,
    non-decreasing); latencies count from it. ``prompt_tokens`` and ``output_tokens`` are at
    least 1. ``class_id`` indexes ``classes``. ``max_concurrency`` bounds the requests in flight
    at the client: ``None`` is open loop; with a bound, a request waits at the client for a free
    place (closed loop when all arrivals are 0).

    Prompts of one ``prefix_group`` (from 0; -1: none) have equal first tokens: two of them share as
    many as the smaller of their ``prefix_tokens``, at most the whole prompt. Both are ``None`` when
    no prompts share anything; only an engine with prefix caching minds. ``hashes`` tells prompts apart
    by hashed blocks instead. ``abort_ns`` is when the
    client of a request goes away if it has no full answer by then (-1: never); such a request is not
    among the finished ones. ``timeout_ns`` is how long a client waits for the whole answer, from the
    intended arrival, in a closed loop from sending; then it gives the request up.
    """

    arrival_ns: Int64
    prompt_tokens: Int64
    output_tokens: Int64
    class_id: Int64
    classes: tuple[str, ...] = ("default",)
    max_concurrency: int | None = None
    prefix_group: Int64 | None = None
    prefix_tokens: Int64 | None = None
    abort_ns: Int64 | None = None
    hashes: PromptHashes | None = None
    timeout_ns: int | None = None

    def __post_init__(self) -> None:
        sizes = {len(a) for a in (self.arrival_ns, self.prompt_tokens, self.output_tokens, self.class_id)}
        if len(sizes) != 1:
            raise SimulationError(f"request arrays differ in length: {sorted(sizes)}")
        if self.hashes is not None and len(self.hashes) != len(self):
            raise SimulationError(f"{len(self.hashes)} hashed prompts for {len(self)} requests")
        if len(self) and (
            np.any(np.diff(self.arrival_ns) < 0)
            or self.arrival_ns[0] < 0
            or self.prompt_tokens.min() < 1
            or self.output_tokens.min() < 1
        ):
            raise SimulationError("requests need ordered arrivals from 0 and at least one token each way")

    def prefix_of(self, request: int) -> tuple[int, int]:
        """Prefix group of one request and the tokens of its prompt that are the group's."""
        if self.prefix_group is None or self.prefix_tokens is None:
            return -1, 0
        group = int(self.prefix_group[request])
        shared = min(int(self.prefix_tokens[request]), int(self.prompt_tokens[request]))
        return group, shared if group >= 0 else 0

    @property
    def closed_loop(self) -> bool:
        """Whether no arrival is intended: every request is wanted at 0 and sent when a place is free."""
        return self.max_concurrency is not None and not self.arrival_ns.any()

    def timed_out(self, finished: Int64) -> int:
        """How many requests were given up after the timeout, by the numbers of those that finished."""
        if self.timeout_ns is None:
            return 0
        missing = np.ones(len(self), dtype=np.bool_)
        missing[finished] = False
        if self.abort_ns is None:
            return int(missing.sum())
        waited = (self.abort_ns < 0) | (self.abort_ns > self.arrival_ns + self.timeout_ns)
        return int((missing & waited).sum())

    def __len__(self) -> int:
        return len(self.arrival_ns)
