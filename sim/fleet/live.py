"""One run of a live fleet: replicas with roles, a router that sees, failures, and a rule that scales."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import simpy
from simpy.events import Event

from sim.engine.client import Process, serve
from sim.engine.simulate import Setup, build_replica, collect
from sim.fleet.choosers import Chooser, Counting, LeastKv, PrefixAware
from sim.fleet.clock import Before
from sim.fleet.config import FleetConfig
from sim.fleet.dispatch import ANSWER, PROMPT, Dispatcher
from sim.fleet.fleet import Member, behind_front_end, common_setup, merge
from sim.fleet.keeper import Keeper, Scaler
from sim.fleet.link import Link
from sim.fleet.lockstep import Lockstep
from sim.fleet.log import FleetLog
from sim.fleet.node import Node
from sim.fleet.routers import ROUTERS, LeastRequests
from sim.policies.base import Policy
from sim.results.fleet_record import FleetRecord, State
from sim.results.run_records import RunRecords


@dataclass(frozen=True)
class Post:
    """One place in a fleet: what its replica runs on, a way to make its policy, and its group."""

    setup: Setup
    build: Callable[[], Policy]
    group: int
    open: bool = True


def simulate_live(posts: Sequence[Post], rules: FleetConfig) -> RunRecords:
    """Replay requests until the last is answered, aborted or failed.

    Replicas are numbered group by group. Requests, seed and context limit are the first one's. Raises
    ``InputError`` if another has other requests or another limit, or if there is none.
    """
    policies = [post.build() for post in posts]
    setup = common_setup([Member(p.setup, policy) for p, policy in zip(posts, policies, strict=True)])
    env, log = simpy.Environment(initial_time=0), FleetLog()
    nodes = _nodes(env, posts, policies, rules)
    r, limit = setup.requests, setup.engine.max_model_len
    wanted = np.minimum(r.output_tokens, limit - r.prompt_tokens).tolist()
    link = Link(rules.kv_bandwidth, rules.kv_latency, _kv_bytes(posts, nodes))
    front = Dispatcher(env, nodes, rules, wanted, link, log)
    keeper = Keeper(env, nodes, front, log, [post.build for post in posts])
    reports = Reports(env, nodes, rules.report_period)
    front.choosers = tuple(_chooser(rules, front, reports, setup, stage) for stage in (PROMPT, ANSWER))
    keeper.befall(rules.events)
    for number, group in enumerate(rules.groups):
        if group.scale is not None:
            own = [node for node, post in zip(nodes, posts, strict=True) if post.group == number]
            env.process(Scaler(keeper, own, group.scale).run())
    if rules.router == "least_kv" and rules.report_period:
        env.process(reports.run())
    serve(env, r, behind_front_end(env, front, setup), _processes(env, nodes, posts, rules), limit)
    record = _record(posts, nodes, rules, log, int(env.now))
    return _records(posts, nodes, front, record)


def _processes(
    env: simpy.Environment, nodes: Sequence[Node], posts: Sequence[Post], rules: FleetConfig
) -> Sequence[Process]:
    """What runs the replicas: each by itself, or the ranks of every group together."""
    if not rules.lockstep:
        return nodes
    numbers = range(len(rules.groups))
    return [
        Lockstep(env, [node for node, post in zip(nodes, posts, strict=True) if post.group == number])
        for number in numbers
    ]


def _nodes(
    env: simpy.Environment, posts: Sequence[Post], policies: Sequence[Policy], rules: FleetConfig
) -> list[Node]:
    """The replicas in order; those of one group share the tables of what steps cost."""
    nodes: list[Node] = []
    for number, (post, policy) in enumerate(zip(posts, policies, strict=True)):
        last = posts[number - 1] if number else post
        alike = number > 0 and post.group == last.group and post.setup is last.setup
        cost = nodes[-1].cost if alike else None
        node = cast(Node, build_replica(env, post.setup, policy, Node, cost))
        node.settle(number, rules.groups[post.group].role, State.OPEN if post.open else State.OFF)
        node.seed = post.setup.seed
        node.loss = rules.acceptance_loss if rules.missing_draft_kv == "lose" else None
        nodes.append(node)
    return nodes


def _kv_bytes(posts: Sequence[Post], nodes: Sequence[Node]) -> Callable[[int, int, int], float]:
    """Bytes of a sequence's KV, the drafter's too where both ends run one that keeps any."""

    def size(source: int, target: int, tokens: int) -> float:
        setup = posts[source].setup
        works = [setup.profile.target.work]
        if nodes[source].drafts and nodes[target].drafts and setup.drafter and setup.drafter.work:
            works.append(setup.drafter.work)
        return sum(work.kv_bytes_per_token * tokens + work.state_bytes_per_sequence for work in works)

    return size


class Reports:
    """KV memory as replicas last reported it; without a ``period``, as it is."""

    def __init__(self, env: simpy.Environment, nodes: Sequence[Node], period: int) -> None:
        self.env, self.nodes, self.period = env, nodes, period
        self.last = [0.0] * len(nodes)

    def kv_share(self, replica: int) -> float:
        """Share of its KV blocks that a replica holds, as far as it is known."""
        return self.last[replica] if self.period else self.nodes[replica].kv_share

    def run(self) -> Generator[Event, None, None]:
        """The SimPy process: all report at once, every period."""
        while True:
            yield Before(self.env, int(self.env.now) + self.period)
            self.last = [node.kv_share for node in self.nodes]


def _chooser(rules: FleetConfig, front: Dispatcher, reports: Reports, setup: Setup, stage: int) -> Chooser:
    """The router of one stage; the two stages take turns of their own.

    A decode replica is never chosen by the prefixes it holds: its KV comes over the link.
    """
    if rules.router == "least_kv":
        return LeastKv(reports.kv_share, front.in_flight)
    if rules.router == "prefix_aware" and stage == ANSWER:
        return Counting(LeastRequests(), front.in_flight)
    if rules.router == "prefix_aware":
        nodes = front.nodes
        return PrefixAware(
            rules.prefix, lambda request, replica: nodes[replica].cached_tokens(request), front.in_flight
        )
    router = ROUTERS[rules.router](len(front.nodes), len(setup.requests), setup.seed)
    return Counting(router, front.in_flight)


def _record(
    posts: Sequence[Post], nodes: Sequence[Node], rules: FleetConfig, log: FleetLog, end_ns: int
) -> FleetRecord:
    first = [next(post for post in posts if post.group == number) for number in range(len(rules.groups))]
    return FleetRecord(
        names=tuple(rules.title(number) for number in range(len(rules.groups))),
        roles=tuple(group.role for group in rules.groups),
        gpus=tuple(post.setup.profile.device.count for post in first),
        group=np.array([post.group for post in posts], dtype=np.int64),
        kv_blocks=np.array([node.scheduler.pool.capacity for node in nodes], dtype=np.int64),
        changes=log.changes,
        moves=log.moves,
        end_ns=end_ns,
    )


def _records(
    posts: Sequence[Post], nodes: Sequence[Node], front: Dispatcher, record: FleetRecord
) -> RunRecords:
    found = [collect(post.setup, node) for post, node in zip(posts, nodes, strict=True)]
    merged = merge(found, posts[0].setup.requests, record.failed_requests)
    requests = merged.requests
    if "prefill" in record.roles:
        requests = {**requests, "prefill_replica": front.prefilled[requests["request"]]}
    return replace(merged, requests=requests, fleet=record)
