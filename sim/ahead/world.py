"""The arrays of a compiled run, filled from the same parts that the stepping engine is built of."""

from __future__ import annotations

import numpy as np

from sim.acceptance.blocks import draw_block
from sim.ahead import layout as at
from sim.ahead.layout import Float, Int64, World
from sim.cost.graphs import MIXED, Graphs
from sim.cost.step_cost import StepCost
from sim.engine.replica import Replica
from sim.engine.simulate import Setup
from sim.policies.by_batch import BatchKey, ByBatch
from sim.workload.requests import Requests

_KEYS: dict[BatchKey, int] = {
    "scheduled": at.BY_SCHEDULED,
    "sampling": at.BY_SAMPLING,
    "running": at.BY_RUNNING,
}
_BUFFER = (1 << 13) + 8  # no power of two: columns would stand in each other's place in a cache
"""Rows of steps that are collected before they are moved."""
_DRAWN_AT_ONCE = 1024


def build_world(
    setup: Setup, replica: Replica, replicas: int = 1, router: int = 0, pairs: Int64 | None = None
) -> World:
    """An empty fleet at time 0, of ``replicas`` like this one.

    ``pairs`` are the replicas drawn for each request, where the router draws.
    """
    seqs, requests = setup.engine.max_num_seqs, setup.requests
    q = _requests(requests, setup.engine.max_model_len, pairs)
    outputs = q[:, at.Q["output_tokens"]]
    q[1:, at.START] = np.cumsum(outputs)[:-1]
    s = np.zeros((replicas, at.REPLICA_SCALARS), dtype=np.int64)
    s[:, at.FREE] = replica.scheduler.pool.capacity
    s[:, at.ALIGNED] = 1
    s[:, [at.END, at.HEAD, at.TAIL, at.LEAVING]] = -1
    return World(
        a=np.zeros((replicas, at.BATCH_ROWS, seqs), dtype=np.int64),
        s=s,
        k=_scalars(setup, replica, router),
        q=q,
        aborts=_aborts(requests),
        runs=np.empty((1, int(outputs.sum())), dtype=np.uint8),
        tables=_tables(replica.cost),
        looks=_looks(replica, seqs),
        steps=np.empty((at.STEP_WIDTH, _BUFFER if setup.keep_steps else 1), dtype=np.int64),
        gaps=np.empty((_BUFFER + seqs, 4), dtype=np.int64),
    )


def _requests(requests: Requests, max_model_len: int, pairs: Int64 | None) -> Int64:
    q = np.zeros((len(requests), at.REQUEST_WIDTH), dtype=np.int64)
    q[:, at.Q["request"]] = np.arange(len(requests))
    q[:, at.Q["class_id"]] = requests.class_id
    q[:, at.Q["arrival_ns"]] = requests.arrival_ns
    q[:, at.Q["prompt_tokens"]] = requests.prompt_tokens
    room = max_model_len - requests.prompt_tokens
    q[:, at.Q["output_tokens"]] = np.minimum(requests.output_tokens, room)
    for name in ("sent_ns", "scheduled_ns", "first_token_ns", "finish_ns"):
        q[:, at.Q[name]] = -1
    q[:, [at.LAST, at.LINK, at.LEAVE]] = -1
    if pairs is not None:
        q[:, at.PAIR : at.PAIR + 2] = pairs
    return q


def _aborts(requests: Requests) -> Int64:
    if requests.abort_ns is None:
        return np.empty((0, 2), dtype=np.int64)
    order = np.argsort(requests.abort_ns, kind="stable")
    entries = np.stack([requests.abort_ns[order], order], axis=1)
    return np.ascontiguousarray(entries[entries[:, 0] >= 0], dtype=np.int64)


def _scalars(setup: Setup, replica: Replica, router: int) -> Int64:
    scheduler, cost, behaviour = replica.scheduler, replica.cost, setup.engine.behaviour
    policy = replica.policy
    values = {
        at.BUDGET: scheduler.budget,
        at.MAX_SEQS: scheduler.max_num_seqs,
        at.MAX_LEN: scheduler.max_model_len,
        at.CHUNK: scheduler.chunk_limit,
        at.BLOCK: scheduler.block_size,
        at.NEAR_LIMIT: scheduler.reaches_limit,
        at.LOOKAHEAD: scheduler.lookahead,
        at.SLOTS: scheduler.slots,
        at.STATE: scheduler.state_blocks,
        at.PADDING: scheduler.padding,
        at.MAX_DEPTH: replica.drafting.max_depth,
        at.DRAFTS: policy.drafts,
        at.IDLE_PASS: behaviour.draft_at_depth_zero,
        at.OVER_EMITTED: behaviour.draft_pass_over == "emitted",
        at.FOR_FINISHED: behaviour.draft_for_finished,
        at.UNIFORM: behaviour.draft_uniformly,
        at.PAST_END: behaviour.draft_past_end,
        at.DUMMIES: replica.drafting.may_overrun,
        at.DRAFTER_LIMIT: replica.drafting.limit,
        at.OVERLAP: behaviour.overlap_host,
        at.PLAIN: cost.graphs.plain,
        at.IDLES: replica.host.idles,
        at.IDLE_NS: setup.engine.depth_zero_overhead,
        at.IDLE_SEQUENCE_NS: setup.engine.depth_zero_overhead_per_sequence,
        at.PAD_QUERIES: behaviour.pad_queries,
        at.OVERHEAD: replica.overhead_ns,
        at.KEEP_STEPS: setup.keep_steps,
        at.SEQUENTIAL: cost.sequential,
        at.BLOCK_TOKENS: cost.block_tokens,
        at.KEY: _KEYS[policy.batch_key] if isinstance(policy, ByBatch) else 0,
        at.CAPACITY: scheduler.pool.capacity,
        at.CLIENTS: setup.requests.max_concurrency or max(len(setup.requests), 1),
        at.ROUTER: router,
    }
    k = np.zeros(at.SCALARS, dtype=np.int64)
    k[at.TURN] = -1
    for place, value in values.items():
        k[place] = int(value)
    return k


def _tables(cost: StepCost) -> Float:
    passes = (cost.verify, cost.accept, cost.host, cost.eager, cost.piecewise, cost.first, cost.next)
    tables = np.zeros((len(passes), 4, len(cost.padded_array)), dtype=np.float64)
    for table, one in zip(tables, passes, strict=True):
        table[0], table[1], table[2] = (one.tables[v] for v in ("tokens", "sequences", "logits"))
        table[3, :5] = one.fixed, one.context, one.query_context, one.pairs, one.wide
    return tables


def _looks(replica: Replica, seqs: int) -> Int64:
    cost, policy, most = replica.cost, replica.policy, replica.drafting.max_depth
    size = len(cost.padded_array)
    depths = (MIXED,) if cost.graphs.plain else (MIXED, *range(most + 1))
    looks = np.zeros((2 * len(depths) + 1, max(size, seqs + 1)), dtype=np.int64)
    for place, depth in enumerate(depths):
        looks[2 * place : 2 * place + 2, :size] = _launches(cost.graphs, depth, size)
    if isinstance(policy, ByBatch):
        looks[-1, : seqs + 1] = [min(policy.depth_at(batch), most) for batch in range(seqs + 1)]
    return looks


def _launches(graphs: Graphs, depth: int, size: int) -> Int64:
    """Launch and padded tokens by tokens, shape (2, size); all alike past the largest graph."""
    tokens = np.arange(size)
    captured = min(graphs.widest + 1, size - 1)
    found = np.array([graphs.of(count, depth) for count in range(captured + 1)], dtype=np.int64).T
    beyond = np.full(size - captured - 1, found[0, -1])
    return np.array([np.append(found[0], beyond), np.append(found[1], tokens[captured + 1 :])])


def draw_more(setup: Setup, world: World) -> World:
    """Draw the runs of the next requests; the world with them in it."""
    first = int(world.k[at.DRAWN])
    last = min(first + _DRAWN_AT_ONCE, len(world.q))
    q, runs = world.q[first:last], world.runs
    columns = (q[:, at.Q[name]].copy() for name in ("request", "class_id", "prompt_tokens", "output_tokens"))
    block = draw_block(setup.processes, *columns)
    start = int(q[0, at.START])
    if block.found is not None and len(runs) == 1:
        runs = np.concatenate([runs, np.ones_like(runs)])
        world.k[at.MATCHES] = 1
    runs[0, start : start + len(block.run)] = block.run
    if block.found is not None:
        runs[1, start : start + len(block.run)] = block.found
    world.k[at.DRAWN] = last
    return world._replace(runs=runs)
