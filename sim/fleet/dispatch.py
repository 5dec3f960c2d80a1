"""The front of a live fleet: sends requests, moves their KV, and knows what became of every one.

A request is at the front (nobody takes it yet), at one replica, or on its way from a prefill replica
to a decode replica. Whatever happens, its client hears of it once: ``done``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import simpy

from sim.engine.batch import Sequence as Request
from sim.engine.client import At
from sim.fleet.choosers import Chooser
from sim.fleet.clock import when
from sim.fleet.config import FleetConfig
from sim.fleet.link import Link
from sim.fleet.log import FleetLog
from sim.fleet.node import Node
from sim.results.fleet_record import FAILED, RETRIED, State

PROMPT, ANSWER = 0, 1
"""The two stages of a request; a replica of the role ``both`` does both in one."""


@dataclass
class Transit:
    """A request whose KV is on its way; ``target`` is -1 while no decode replica takes requests."""

    request: Request
    source: int
    target: int = -1


class Dispatcher:
    """A server made of replicas that come and go.

    ``in_flight`` counts the requests of every replica; one whose KV travels counts at both ends.
    ``wanted`` has every request's output tokens.
    """

    def __init__(
        self,
        env: simpy.Environment,
        nodes: Sequence[Node],
        rules: FleetConfig,
        wanted: Sequence[int],
        link: Link,
        log: FleetLog,
    ) -> None:
        self.env, self.nodes, self.rules, self.wanted = env, nodes, rules, wanted
        self.link, self.log = link, log
        self.in_flight = [0] * len(nodes)
        self.home: dict[int, int] = {}
        self.transits: dict[int, Transit] = {}
        self.queue: deque[Request] = deque()
        """Requests that no replica takes yet."""
        self.stranded: deque[Transit] = deque()
        """Requests with their prompt computed that no decode replica takes yet."""
        self.open: tuple[list[int], list[int]] = ([], [])
        self.choosers: tuple[Chooser, ...] = ()
        self.hope: Callable[[Node], bool] = lambda node: node.state in (State.OPEN, State.STARTING)
        """Whether a replica takes requests or is going to."""
        self.emptied: Callable[[Node], None] = lambda node: None
        self.fallen: Callable[[Node], None] = lambda node: None
        self.done: Callable[[int], None] = lambda request: None
        self.prefilled = np.full(len(wanted), -1, dtype=np.int64)
        """The replica that computed a request's prompt for another, -1 where none did."""
        for node in nodes:
            self._adopt(node)
        self.recount()

    def _adopt(self, node: Node) -> None:
        node.wanted = self.wanted.__getitem__
        node.done = lambda request: self._finished(node, request)
        node.pass_on = lambda request: self._passed_on(node, request)
        node.lost = lambda lost: self._lost(node, lost)
        node.elsewhere = self._left_elsewhere

    def recount(self) -> None:
        """Which replicas take requests of each stage, after some state has changed."""
        taking = [node for node in self.nodes if node.state == State.OPEN and not node.falling]
        self.open[PROMPT][:] = [node.number for node in taking if node.role != "decode"]
        self.open[ANSWER][:] = [node.number for node in taking if node.role != "prefill"]

    def flush(self) -> None:
        """Send what waits at the front, or tell its client that nobody will ever take it."""
        stranded, queue = list(self.stranded), list(self.queue)
        self.stranded.clear()
        self.queue.clear()
        for transit in stranded:
            self._ship(transit)
        for request in queue:
            self._enter(request)

    @property
    def held_back(self) -> int:
        """Requests that wait at the front."""
        return len(self.queue) + len(self.stranded)

    # -- the outside -------------------------------------------------------------------------

    def submit(self, request: Request) -> None:
        """Send one request to the replica that the router chooses."""
        self._enter(request)

    def abort(self, request: int) -> None:
        """The client of a request went away: nobody computes it any more."""
        if request in self.home:
            self.nodes[self.home[request]].abort(request)
        else:
            self._left_elsewhere(request)

    def _left_elsewhere(self, request: int) -> None:
        """The client of a request went away that is on no replica, or on another than it was."""
        if request in self.home:
            self.abort(request)
        elif request in self.transits:
            transit = self.transits.pop(request)
            if transit in self.stranded:
                self.stranded.remove(transit)
            self._arrive(transit)
            self._close(request)
        else:
            here = next((each for each in self.queue if each.request == request), None)
            if here is not None:
                self.queue.remove(here)
                self._close(request)

    def _close(self, request: int) -> None:
        """The last that is heard of a request here."""
        self.done(request)

    # -- on its way --------------------------------------------------------------------------

    def _enter(self, request: Request, front: bool = False) -> None:
        """Send a request to where its prompt is computed."""
        among = self.open[PROMPT]
        if not among:
            self._hold(request, front)
            return
        node = self.nodes[self.choosers[PROMPT].choose(request, among)]
        whole = self.wanted[request.request]
        request.output_tokens = request.produced + 1 if node.role == "prefill" else whole
        self._put(node, request)

    def _hold(self, request: Request, front: bool) -> None:
        if not any(self.hope(node) for node in self.nodes if node.role != "decode"):
            self._fail(request, -1)
        elif front:
            self.queue.appendleft(request)
        else:
            self.queue.append(request)

    def _put(self, node: Node, request: Request) -> None:
        self.home[request.request] = node.number
        self.in_flight[node.number] += 1
        node.submit(request)

    def _finished(self, node: Node, request: int) -> None:
        del self.home[request]
        self._one_less(node)
        self._close(request)

    def _one_less(self, node: Node) -> None:
        self.in_flight[node.number] -= 1
        if not self.in_flight[node.number]:
            self.emptied(node)

    def _passed_on(self, node: Node, request: Request) -> None:
        """A prompt is computed: its KV goes to a decode replica."""
        del self.home[request.request]
        transit = Transit(request, node.number)
        self.transits[request.request] = transit
        self._ship(transit)

    def _ship(self, transit: Transit) -> None:
        """Choose where the KV goes, and send it."""
        among, request = self.open[ANSWER], transit.request
        if not among:
            if any(self.hope(node) for node in self.nodes if node.role != "prefill"):
                self.stranded.append(transit)
            else:
                self._give_up(transit)
            return
        transit.target = self.choosers[ANSWER].choose(request, among)
        self.in_flight[transit.target] += 1
        end = self.link.send(transit.source, transit.target, request.tokens - 1, int(self.env.now))
        target = transit.target
        when(At(self.env, end), lambda: self._landed(transit, target))

    def _landed(self, transit: Transit, target: int) -> None:
        """The KV is there, unless the request left or its replica failed meanwhile."""
        request = transit.request
        if self.transits.get(request.request) is not transit or transit.target != target:
            return
        del self.transits[request.request]
        self.nodes[transit.source].unpark(request.request)
        self._one_less(self.nodes[transit.source])
        request.path, request.kept_tokens = None, request.tokens - 1
        request.output_tokens = self.wanted[request.request]
        self.home[request.request] = target
        self.prefilled[request.request] = transit.source
        node = self.nodes[target]
        if node.drafts and not self.nodes[transit.source].drafts:
            node.bare.add(request.request)
        node.submit(request)

    def _arrive(self, transit: Transit) -> None:
        """End a journey early: both ends are free of it."""
        source = self.nodes[transit.source]
        if transit.request.request in source.parked:
            source.unpark(transit.request.request)
        self._one_less(source)
        if transit.target >= 0:
            self._one_less(self.nodes[transit.target])

    # -- failures ----------------------------------------------------------------------------

    def _lost(self, node: Node, lost: list[Request]) -> None:
        """A replica failed: what it had, and KV on its way from or to it, is gone."""
        for chooser in self.choosers:
            chooser.forget(node.number)
        for request in lost:
            del self.home[request.request]
        self.in_flight[node.number] -= len(lost)
        travelling = [t for t in self.transits.values() if node.number in (t.source, t.target)]
        self.recount()
        for transit in travelling:
            self._interrupt(transit, node)
        again = [request for request in lost if self._is_sent_again(request, node)]
        for request in reversed(again) if not self.open[PROMPT] else again:
            self._enter(request, front=True)
        self.fallen(node)

    def _interrupt(self, transit: Transit, node: Node) -> None:
        """KV on its way is sent to another replica if it is still there, and else computed again."""
        target, transit.target = transit.target, -1
        if target >= 0:
            self._one_less(self.nodes[target])
        if transit.source != node.number:
            self._ship(transit)
            return
        del self.transits[transit.request.request]
        if transit in self.stranded:
            self.stranded.remove(transit)
        self._one_less(node)
        if self._is_sent_again(transit.request, node):
            self._enter(transit.request, front=True)

    def _give_up(self, transit: Transit) -> None:
        """No decode replica is left that could ever take it."""
        del self.transits[transit.request.request]
        self._arrive(transit)
        self._fail(transit.request, transit.source)

    def _is_sent_again(self, request: Request, node: Node) -> bool:
        """Make a lost request ready to be sent again, or tell its client that it failed."""
        request.streamed = max(request.streamed, request.produced)
        rule = self.rules.retry
        if rule == "none" or (rule == "unstarted" and request.streamed):
            self._fail(request, node.number)
            return False
        request.path, request.kept_tokens = None, 0
        if rule == "resume":
            request.streamed = 0
        else:
            request.produced = 0
        self.log.move(int(self.env.now), request.request, node.number, RETRIED)
        return True

    def _fail(self, request: Request, replica: int) -> None:
        self.log.move(int(self.env.now), request.request, replica, FAILED)
        self._close(request.request)
