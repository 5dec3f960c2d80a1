"""The client: sends each request at its intended arrival, or when a place in flight is free."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from typing import Protocol

import simpy
from simpy.events import URGENT, Event

from sim.engine.batch import Sequence
from sim.workload.requests import Requests


class Server(Protocol):
    """Anything that takes requests: a replica, or a front before several.

    ``done`` is called with the number of each request that was answered or let go.
    """

    done: Callable[[int], None]

    def submit(self, sequence: Sequence) -> None:
        """Queue one request."""
        ...

    def abort(self, request: int) -> None:
        """Drop one request at the end of the step that runs, unless it is answered by then."""
        ...


class At(Event):
    """An event at a given time that comes before ordinary events of the same time.

    So a request that arrives at the instant a step ends is seen by the next step, whatever
    other events the simulation holds.
    """

    def __init__(self, env: simpy.Environment, time_ns: int) -> None:
        super().__init__(env)
        self._ok, self._value = True, None
        env.schedule(self, URGENT, time_ns - int(env.now))


class Process(Protocol):
    """What runs beside the client until the last answer."""

    def run(self) -> Generator[Event, None, None]:
        """The SimPy process."""
        ...


def serve(
    env: simpy.Environment,
    requests: Requests,
    server: Server,
    replicas: Iterable[Process],
    max_model_len: int,
) -> None:
    """Replay the requests against a server made of ``replicas``, until the last is answered."""
    client = Client(env, requests, server, max_model_len)
    server.done = client.done
    env.process(client.run())
    env.process(client.leave())
    for replica in replicas:
        env.process(replica.run())
    env.run(until=client.finished)


class Client:
    """Replays requests against a server; ``finished`` fires when the last one is answered."""

    def __init__(
        self, env: simpy.Environment, requests: Requests, server: Server, max_model_len: int
    ) -> None:
        self.env, self.requests, self.server = env, requests, server
        self.max_model_len = max_model_len
        self.limit = requests.max_concurrency or len(requests)
        self.in_flight = 0
        self.answered = 0
        self.backlog: deque[int] = deque()
        self.patient: set[int] = set()
        """Requests that came and are neither answered nor given up, where clients wait only so long."""
        self.finished = env.event()
        if not len(requests):
            self.finished.succeed()

    def run(self) -> Generator[Event, None, None]:
        """The SimPy process: one event per distinct arrival time."""
        for request, arrival in enumerate(self.requests.arrival_ns.tolist()):
            if arrival > self.env.now:
                yield At(self.env, arrival)
            if not self.requests.closed_loop:
                self._wait_for(request)
            if self.in_flight < self.limit:
                self._send(request)
            else:
                self.backlog.append(request)

    def leave(self) -> Generator[Event, None, None]:
        """The SimPy process of clients that go away before their answer."""
        if self.requests.abort_ns is None:
            return
        times = self.requests.abort_ns.tolist()
        for time, request in sorted((t, i) for i, t in enumerate(times) if t >= 0):
            if time > self.env.now:
                yield At(self.env, time)
            self.server.abort(request)

    def _wait_for(self, request: int) -> None:
        """Let the request's client wait for as long as it does, from now on."""
        if self.requests.timeout_ns is not None:
            self.patient.add(request)
            end = At(self.env, int(self.env.now) + self.requests.timeout_ns)
            end.callbacks.append(lambda event: self._give_up(request))

    def _give_up(self, request: int) -> None:
        """The client of a request has waited long enough; a request that was not sent never will be."""
        if request not in self.patient:
            return
        if request in self.backlog:
            self.backlog.remove(request)
            self._count(request)
        else:
            self.server.abort(request)

    def done(self, request: int) -> None:
        """A request was answered, or its client went away: its place is free for the next one."""
        self.in_flight -= 1
        if self.backlog:
            self._send(self.backlog.popleft())
        self._count(request)

    def _count(self, request: int) -> None:
        """One request less to wait for."""
        self.patient.discard(request)
        self.answered += 1
        if self.answered == len(self.requests):
            self.finished.succeed()

    def _send(self, request: int) -> None:
        self.in_flight += 1
        r = self.requests
        if r.closed_loop:
            self._wait_for(request)
        prompt = int(r.prompt_tokens[request])
        group, shared = r.prefix_of(request)
        self.server.submit(
            Sequence(
                request=request,
                class_id=int(r.class_id[request]),
                prompt_tokens=prompt,
                output_tokens=min(int(r.output_tokens[request]), self.max_model_len - prompt),
                arrival_ns=int(r.arrival_ns[request]),
                sent_ns=int(self.env.now),
                prefix_group=group,
                prefix_tokens=shared,
                hashes=() if r.hashes is None else r.hashes.prompt(request),
                hash_block=1 if r.hashes is None else r.hashes.block,
            )
        )
