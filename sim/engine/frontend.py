"""The front end: what stands between a client and the engine's queue.

HTTP, tokenizer and detokenizer take time that no engine step shows. In vLLM they are a process beside the
engine's (vllm/v1/engine/async_llm.py), or several (``--api-server-count``): servers with one queue.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import NamedTuple

import simpy
from simpy.events import Event

from sim.engine.batch import Sequence
from sim.engine.client import At, Server
from sim.engine.config import EngineConfig


class FrontEndTimes(NamedTuple):
    """Nanoseconds of a request before the queue, of each of its prompt tokens, and of an answer's way back.

    ``servers`` take one request at a time each; with 0 nobody waits for one.
    """

    request_ns: int = 0
    token_ns: int = 0
    answer_ns: int = 0
    servers: int = 0

    @classmethod
    def of(cls, engine: EngineConfig) -> FrontEndTimes:
        """Those that the engine states."""
        return cls(
            engine.frontend_time, engine.frontend_time_per_token, engine.answer_time, engine.frontend_servers
        )

    @property
    def any(self) -> bool:
        """Whether the front end takes time at all."""
        return bool(self.request_ns or self.token_ns or self.answer_ns)

    def before(self, sequence: Sequence) -> int:
        """Nanoseconds of work on one request before it is queued."""
        return self.request_ns + self.token_ns * sequence.prompt_tokens


class FrontEnd:
    """A server before another: requests reach it in order and late, and so do answers the client.

    ``done`` is called when the client has the whole answer. Records of the server behind it are in its own
    times; ``answer_ns`` is added to them where a run is collected.
    """

    def __init__(self, env: simpy.Environment, server: Server, times: FrontEndTimes) -> None:
        self.env, self.server, self.times = env, server, times
        self.done: Callable[[int], None] = lambda request: None
        self._free_ns = [0] * times.servers
        self._under_way: set[int] = set()
        server.done = self._answer

    def submit(self, sequence: Sequence) -> None:
        """Take one request; it is queued behind as soon as a server is through with it."""
        self._under_way.add(sequence.request)
        self.env.process(self._deliver(sequence, self._through(sequence)))

    def abort(self, request: int) -> None:
        """Drop one request: at once while it is here, else as the server behind does."""
        if request in self._under_way:
            self._under_way.discard(request)
            self.done(request)
        else:
            self.server.abort(request)

    def _through(self, sequence: Sequence) -> int:
        """When a request that comes now leaves for the queue: the server that is free first takes it."""
        takes, now = self.times.before(sequence), int(self.env.now)
        if not self._free_ns:
            return now + takes
        first = self._free_ns.index(min(self._free_ns))
        self._free_ns[first] = max(self._free_ns[first], now) + takes
        return self._free_ns[first]

    def _deliver(self, sequence: Sequence, at_ns: int) -> Generator[Event, None, None]:
        yield At(self.env, at_ns)
        if sequence.request in self._under_way:
            self._under_way.discard(sequence.request)
            self.server.submit(sequence)

    def _answer(self, request: int) -> None:
        if not self.times.answer_ns:
            self.done(request)
            return
        back = At(self.env, int(self.env.now) + self.times.answer_ns)
        if back.callbacks is not None:
            back.callbacks.append(lambda event: self.done(request))
