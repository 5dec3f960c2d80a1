"""Several replicas of the engine behind a router, in one simulation.

Replicas are SimPy processes and requests are data, as with one replica. Every replica has a policy
of its own, which learns from what that replica serves and from nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, cast

import numpy as np
import simpy

from sim.ahead.asked import AskedReplica, open_replica
from sim.ahead.choose import repays, why_asked, why_stepped
from sim.ahead.run import run_ahead
from sim.engine.client import Server, serve
from sim.engine.frontend import FrontEnd, FrontEndTimes
from sim.engine.simulate import Setup, build_replica, collect
from sim.errors import InputError
from sim.fleet.config import RouterName
from sim.fleet.front import Front
from sim.fleet.routers import ROUTERS
from sim.policies.base import Policy
from sim.policies.by_batch import ByBatch
from sim.results.run_records import Columns, Int64, RunRecords
from sim.workload.requests import Requests

NONE: Final[Int64] = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True)
class Member:
    """One replica of a fleet: what it runs on, and its own policy."""

    setup: Setup
    policy: Policy


def simulate_fleet(
    members: Sequence[Member], router: RouterName = "least_requests", stepping: bool = False
) -> RunRecords:
    """Replay requests against replicas, equal or not, until the last is answered.

    Steps are taken one by one, or many at once where that gives the same records (sim/ahead) and
    ``stepping`` is not asked for.

    One replica behind any router is the plain engine. Requests, seed and context limit are the first
    member's; raises ``InputError`` if another member has other requests or another limit, or if
    there is none.
    """
    setup = common_setup(members)
    requests, limit = setup.requests, setup.engine.max_model_len
    compiled = not stepping and all(why_stepped(m.setup, m.policy) is None for m in members) and repays(setup)
    policies = [member.policy for member in members]
    if compiled and why_asked(requests, policies, [member.setup for member in members]) is None:
        return run_ahead(setup, cast(ByBatch, policies[0]), len(members), router)
    env = simpy.Environment(initial_time=0)
    build = open_replica if compiled else build_replica
    replicas = [build(env, member.setup, member.policy) for member in members]
    chooser = ROUTERS[router](len(members), len(requests), setup.seed)
    front: Server = Front(replicas, chooser, len(requests))
    serve(env, requests, behind_front_end(env, front, setup), replicas, limit)
    found = [
        replica.records() if isinstance(replica, AskedReplica) else collect(member.setup, replica)
        for member, replica in zip(members, replicas, strict=True)
    ]
    return found[0] if len(found) == 1 else merge(found, requests)


def common_setup(members: Sequence[Member]) -> Setup:
    """The setup whose requests all members serve; raises ``InputError`` if there is none."""
    if not members:
        raise InputError("a fleet needs at least one replica")
    first = members[0].setup
    for member in members[1:]:
        if member.setup.requests is not first.requests:
            raise InputError("replicas of one fleet serve the same requests; give each the same object")
        if member.setup.engine.max_model_len != first.engine.max_model_len:
            raise InputError("replicas of one fleet need the same max_model_len: any may get any request")
    return first


def behind_front_end(env: simpy.Environment, front: Server, setup: Setup) -> Server:
    """The fleet behind the one front end that the engine states, if that takes time."""
    times = FrontEndTimes.of(setup.engine)
    return FrontEnd(env, front, times) if times.any else front


def merge(found: Sequence[RunRecords], sent: Requests, failed: Int64 = NONE) -> RunRecords:
    """Records of all replicas as those of one run of the ``sent`` requests, some of which ``failed``."""
    requests = _joined([records.requests for records in found])
    order = np.argsort(requests["request"], kind="stable")
    timed_out = sent.timed_out(np.concatenate([requests["request"], failed]))
    pooled = zip(*(records.chunk_gaps for records in found), strict=True)
    gaps, counts, ends = (np.concatenate(columns) for columns in pooled)
    return replace(
        found[0],
        requests={name: values[order] for name, values in requests.items()},
        steps=_joined([records.steps for records in found]),
        chunk_gaps=(gaps, counts, ends),
        unfinished=len(sent) - len(order) - timed_out,
        timed_out=timed_out,
        kv_blocks_total=max(records.kv_blocks_total for records in found),
        replicas=len(found),
    )


def _joined(tables: Sequence[Columns]) -> Columns:
    """One table under the other, with the number of the replica; columns that one lacks are 0 there."""
    lengths = [len(next(iter(table.values()))) for table in tables]
    names = dict.fromkeys(name for table in tables for name in table)
    zeros = [np.zeros(length, dtype=np.int64) for length in lengths]
    joined = {
        name: np.concatenate([table.get(name, zero) for table, zero in zip(tables, zeros, strict=True)])
        for name in names
    }
    return {**joined, "replica": np.repeat(np.arange(len(tables), dtype=np.int64), lengths)}
