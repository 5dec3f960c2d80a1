"""Which replicas of a live fleet run: starts, drains, failures, recoveries, by plan or by rule."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from typing import Final

import simpy
from simpy.events import Event

from sim.fleet.clock import Before, when
from sim.fleet.config import FleetEvent, Scale
from sim.fleet.dispatch import Dispatcher
from sim.fleet.log import FleetLog
from sim.fleet.node import Node
from sim.policies.base import Policy
from sim.results.fleet_record import State

TOLERANCE: Final = 0.1
"""A total within this share of the target changes nothing (Kubernetes' default)."""


class Keeper:
    """Changes the states of replicas, and tells the front and the log.

    ``build`` makes a fresh policy for a replica that starts anew.
    """

    def __init__(
        self,
        env: simpy.Environment,
        nodes: Sequence[Node],
        front: Dispatcher,
        log: FleetLog,
        build: Sequence[Callable[[], Policy]],
    ) -> None:
        self.env, self.nodes, self.front, self.log, self.build = env, nodes, front, log, build
        self.back: dict[int, int] = {}
        """When failed replicas come back, of those that will."""
        self.scaled: set[int] = set()
        """Replicas that a rule may start."""
        self._starts = [0] * len(nodes)
        front.hope, front.emptied, front.fallen = self.hope, self._emptied, self._fallen
        for node in nodes:
            log.change(int(env.now), node.number, node.state)

    def hope(self, node: Node) -> bool:
        """Whether a replica takes requests or is going to, as far as anybody knows."""
        if node.state in (State.OPEN, State.STARTING) or node.number in self.back:
            return True
        return node.number in self.scaled and node.state in (State.OFF, State.DRAINING)

    # -- on and off --------------------------------------------------------------------------

    def start(self, node: Node, after_ns: int) -> None:
        """Begin to start a replica that is off; it takes requests ``after_ns`` later."""
        self._starts[node.number] += 1
        turn = self._starts[node.number]
        if not after_ns:
            self._open(node)
            return
        self._turn(node, State.STARTING)

        def started() -> None:
            if node.state == State.STARTING and self._starts[node.number] == turn:
                self._open(node)

        when(Before(self.env, int(self.env.now) + after_ns), started)

    def stop(self, node: Node) -> None:
        """Let a replica answer what it has and then stop."""
        self._turn(node, State.DRAINING if node.state == State.OPEN else State.OFF)
        self._emptied(node)

    def reopen(self, node: Node) -> None:
        """Let a draining replica take requests again."""
        self._turn(node, State.OPEN)
        self.front.flush()

    def _open(self, node: Node) -> None:
        node.renew(self.build[node.number]())
        self.reopen(node)

    def _turn(self, node: Node, state: State) -> None:
        node.state = state
        self.log.change(int(self.env.now), node.number, state)
        self.front.recount()

    def _emptied(self, node: Node) -> None:
        """A draining replica that has answered everything stops."""
        if node.state == State.DRAINING and not self.front.in_flight[node.number]:
            node.evict()
            for chooser in self.front.choosers:
                chooser.forget(node.number)
            self._turn(node, State.OFF)

    # -- what befalls them -------------------------------------------------------------------

    def befall(self, events: Sequence[FleetEvent]) -> None:
        """Plan what the scenario states."""
        for event in events:
            happens = self._failing if event.fail is not None else self._slowing
            when(Before(self.env, event.at), happens(self.nodes[event.replica], event))

    def _failing(self, node: Node, event: FleetEvent) -> Callable[[], None]:
        def fail() -> None:
            if node.state in (State.OFF, State.DOWN):
                return
            if event.lasts is not None:
                self.back[node.number] = event.at + event.lasts
                when(Before(self.env, event.at + event.lasts), lambda: self._recover(node))
            self._turn(node, State.DOWN)
            node.fail()

        return fail

    def _fallen(self, node: Node) -> None:
        """A failed replica has lost what it had; requests nobody will ever take are told so."""
        if self.back.get(node.number, self.env.now + 1) <= self.env.now:
            self._recover(node)
        self.front.flush()

    def _recover(self, node: Node) -> None:
        if node.falling or node.state != State.DOWN:
            return  # it comes back at the end of the step that it fails in
        del self.back[node.number]
        self._open(node)

    def _slowing(self, node: Node, event: FleetEvent) -> Callable[[], None]:
        def slow() -> None:
            node.pace *= event.factor
            if event.lasts is not None:
                when(Before(self.env, event.at + event.lasts), usual)

        def usual() -> None:
            node.pace /= event.factor

        return slow


class Scaler:
    """One group's rule: how many of its replicas run."""

    def __init__(self, keeper: Keeper, nodes: Sequence[Node], rule: Scale) -> None:
        self.keeper, self.nodes, self.rule = keeper, nodes, rule
        self._changed = -rule.cooldown
        self._steps_ns = [0] * len(nodes)
        keeper.scaled |= {node.number for node in nodes}

    def run(self) -> Generator[Event, None, None]:
        """The SimPy process: one decision per period."""
        env = self.keeper.env
        while True:
            yield Before(env, int(env.now) + self.rule.period)
            self.decide(int(env.now))

    def decide(self, now: int) -> None:
        """Start or stop replicas until there are as many as wanted."""
        total = self._total()
        have = [node for node in self.nodes if node.state in (State.OPEN, State.STARTING)]
        want = min(max(math.ceil(total / self.rule.target), self.rule.min), self.rule.max)
        near = abs(total / (self.rule.target * max(len(have), 1)) - 1) <= TOLERANCE
        within = self.rule.min <= len(have) <= self.rule.max
        if want == len(have) or (near and within):
            return
        if want > len(have):
            self._add(want - len(have), now)
        elif now - self._changed >= self.rule.cooldown:
            self._take(have[want:], now)

    def _total(self) -> float:
        """The metric over the replicas that take requests, and requests that nobody takes yet."""
        front, rule = self.keeper.front, self.rule
        takes = [node for node in self.nodes if node.state == State.OPEN]
        busy = self._busy()
        if rule.metric == "in_flight":
            return sum(front.in_flight[node.number] for node in takes) + front.held_back
        if rule.metric == "waiting":
            return sum(len(node.scheduler.waiting) for node in takes) + front.held_back
        if rule.metric == "kv":
            return sum(node.kv_share for node in takes)
        return sum(busy[i] for i, node in enumerate(self.nodes) if node.state == State.OPEN)

    def _busy(self) -> list[float]:
        """Share of the last period that each replica spent in steps; one that runs counts whole."""
        now = [node.steps_ns for node in self.nodes]
        shares = [
            min(1.0, (steps - before) / self.rule.period)
            for steps, before in zip(now, self._steps_ns, strict=True)
        ]
        self._steps_ns = now
        return shares

    def _add(self, count: int, now: int) -> None:
        """Replicas that still drain first, then those that are off, by number."""
        draining = [node for node in self.nodes if node.state == State.DRAINING][:count]
        for node in draining:
            self.keeper.reopen(node)
        off = [node for node in self.nodes if node.state == State.OFF][: count - len(draining)]
        for node in off:
            self.keeper.start(node, self.rule.startup)
        if draining or off:
            self._changed = now

    def _take(self, nodes: Sequence[Node], now: int) -> None:
        """Those of the highest numbers; what still starts is off at once, the others drain."""
        for node in nodes:
            self.keeper.stop(node)
        self._changed = now
