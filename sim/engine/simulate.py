"""One run: requests, costs, acceptance, engine and policy in; records out."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import simpy

from calibrate.profile import Drafter, Profile
from sim.acceptance.base import AcceptanceProcess, Path
from sim.cost.graphs import GraphHabits
from sim.cost.step_cost import DraftHabits, StepCost, StepHabits
from sim.engine.asynchronous import AsyncReplica
from sim.engine.batch import Arena, Sequence
from sim.engine.behaviour import Behaviour
from sim.engine.client import serve
from sim.engine.config import EngineConfig
from sim.engine.frontend import FrontEnd, FrontEndTimes
from sim.engine.holes import Holes
from sim.engine.host_memory import HostMemory
from sim.engine.kv import BlockPool, block_bytes, blocks_in, blocks_in_memory, checkpoint_blocks, state_blocks
from sim.engine.prefill_first import PrefillFirst
from sim.engine.prefix_cache import PrefixCache
from sim.engine.replica import Replica
from sim.engine.scheduler import Scheduler
from sim.errors import InputError
from sim.policies.base import Policy, Tree
from sim.policies.static import Static
from sim.policies.tree import TreeDrafts
from sim.results.run_records import Columns, Int64, RunRecords
from sim.workload.requests import Requests


@dataclass(frozen=True)
class Setup:
    """Everything one run needs; ``processes`` has one acceptance process per request class.

    ``max_depth`` is the depth that the engine is configured for (``num_speculative_tokens``), in a
    tree its nodes; ``tpot_limits_ns`` the TPOT limit of every class, 0 for none, for policies that
    mind it; ``seed`` names the streams of luck that no acceptance process owns. ``structured`` says of
    every request class whether its answers follow a grammar; empty: none does.
    """

    requests: Requests
    profile: Profile
    drafter: Drafter | None
    engine: EngineConfig
    processes: tuple[AcceptanceProcess, ...]
    max_depth: int
    keep_steps: bool = True
    tpot_limits_ns: tuple[int, ...] = ()
    seed: int = 0
    structured: tuple[bool, ...] = ()


def simulate(setup: Setup, policy: Policy) -> RunRecords:
    """Replay the requests under one policy until the last is answered."""
    env = simpy.Environment(initial_time=0)
    replica = build_replica(env, setup, policy)
    times = FrontEndTimes.of(setup.engine)
    server = FrontEnd(env, replica, times) if times.any else replica
    serve(env, setup.requests, server, [replica], setup.engine.max_model_len)
    return collect(setup, replica)


def build_replica(
    env: simpy.Environment,
    setup: Setup,
    policy: Policy,
    make: type[Replica] = Replica,
    cost: StepCost | None = None,
) -> Replica:
    """A replica with its scheduler, memory and costs; raises ``InputError`` if nothing fits.

    ``cost`` is that of a replica with the same setup and a policy of the same configuration, whose tables
    are then shared.
    """
    engine, behaviour = setup.engine, setup.engine.behaviour
    if behaviour.async_scheduling and make is Replica:
        make = AsyncReplica
    drafter = setup.drafter if policy.drafts else None
    depth = setup.max_depth if drafter else 0
    state = state_blocks(setup.profile, drafter, engine.block_size)
    if behaviour.checkpoint_states:
        state += checkpoint_blocks(setup.profile, drafter, engine.block_size, depth)
    pool = _pool(setup, drafter, state)
    r = setup.requests
    rows = int(r.output_tokens.max(initial=1)) + 1
    tree = _tree(policy)
    prompts_first = _prompts_first(behaviour, depth)
    kind = partial(PrefillFirst, most_in_a_row=engine.max_prefill_steps) if prompts_first else Scheduler
    scheduler = kind(
        engine,
        pool,
        Arena(engine.max_num_seqs, rows, max(depth, 1), policy.wants_confidence, tree),
        draw=lambda sequence: _draw(setup.processes, sequence),
        longest=int((r.prompt_tokens + r.output_tokens).max(initial=0)),
        max_depth=depth,
        lookahead=_lookahead(drafter, depth) if behaviour.lookahead else 0,
        slots=_slots(drafter, depth) if behaviour.draft_slots else 0,
        state_blocks=state,
        padding=_fixed_depth(policy, depth) if behaviour.pad_new_decodes and not prompts_first else 0,
        host=_host(setup, drafter) if behaviour.preemption == "swap" else None,
    )
    _check_fits(setup, scheduler, depth)
    widest = max(depth + 1, tree.width if tree else 1)
    asked = max(engine.max_num_batched_tokens, engine.max_num_seqs * widest)
    if behaviour.async_scheduling:
        asked += engine.max_num_seqs * widest  # ended sequences ride along once more, beside the budget
    habits = DraftHabits(
        over_scheduled=behaviour.draft_pass_over == "scheduled",
        idle_pass=behaviour.draft_at_depth_zero,
        uniform=behaviour.draft_uniformly,
        kv_tokens=engine.draft_kv_tokens,
    )
    cost = cost or StepCost(
        setup.profile, drafter, asked, (), habits, _graphs(behaviour, policy, depth), _step_habits(engine)
    )
    return make(
        env,
        scheduler,
        cost,
        policy,
        engine,
        depth,
        setup.keep_steps,
        setup.tpot_limits_ns,
        _holes(setup, drafter, scheduler, policy, tree.depth if tree else depth),
        setup.structured,
    )


def _graphs(behaviour: Behaviour, policy: Policy, depth: int) -> GraphHabits:
    """What is captured for the policy: graphs for its one depth, for every depth, or in pieces alone."""
    fixed = depth == 0 or isinstance(policy, Static | TreeDrafts)
    mode = behaviour.graphs
    if not fixed and behaviour.varying_depth_graphs == "piecewise" and mode != "none":
        mode = "none" if mode == "full_decode_only" else "piecewise"
    depths = (depth,) if fixed else tuple(range(depth + 1))
    rounded = behaviour.capture_multiples and mode not in ("none", "piecewise")
    return GraphHabits(mode, behaviour.capture_sizes, depths, rounded)


def _step_habits(engine: EngineConfig) -> StepHabits:
    """What policies price of every step."""
    return StepHabits(
        overlap_host=engine.behaviour.overlap_host,
        idle_rank_share=engine.idle_rank_share,
        depth_zero_ns=engine.depth_zero_overhead,
        depth_zero_sequence_ns=engine.depth_zero_overhead_per_sequence,
    )


def _pool(setup: Setup, drafter: Drafter | None, state: int) -> BlockPool:
    """Blocks that are only counted, or found again by content."""
    blocks = kv_blocks(setup.engine, setup.profile, drafter)
    if not setup.engine.behaviour.prefix_caching:
        return BlockPool(blocks)
    if state and setup.engine.prefix_unit is None:
        raise InputError(
            f"prefix_caching is on, and {setup.profile.name} keeps a recurrent state per sequence, which an "
            "engine caches at some positions only; set prefix_unit to the tokens between them (vLLM names "
            "them as its attention block size when it starts), or prefix_caching: false"
        )
    drop_last = setup.engine.behaviour.drop_last_hit and _reads_target(drafter)
    greedy = setup.engine.sampling == "greedy"
    unit = setup.engine.prefix_unit or setup.engine.block_size
    return PrefixCache(blocks, setup.engine.block_size, drop_last, greedy, unit // setup.engine.block_size)


def _prompts_first(behaviour: Behaviour, depth: int) -> bool:
    """Whether prompts have steps of their own: always, or because the engine speculates."""
    return behaviour.prefill == "first" or (depth > 0 and not behaviour.mixed_under_speculation)


def _host(setup: Setup, drafter: Drafter | None) -> HostMemory:
    """Memory that preempted KV is moved to; raises ``InputError`` if nobody knows how large KV is."""
    engine = setup.engine
    size = block_bytes(setup.profile, drafter, engine.block_size)
    if not size:
        raise InputError(
            f"preemption: swap moves KV, and {setup.profile.name} does not say how many bytes a token's KV "
            "has; add kv_bytes_per_token to the profile, or set preemption: recompute"
        )
    return HostMemory(engine.swap_space, size, engine.swap_bandwidth)


def _fixed_depth(policy: Policy, most: int) -> int:
    """Drafts of every sequence in every step; 0 if the policy varies them (vLLM's dynamic depth)."""
    if isinstance(policy, Static):
        return min(policy.k, most)
    if isinstance(policy, TreeDrafts) and _tree(policy) is None:
        return min(policy.nodes, most)
    return 0


def _reads_target(drafter: Drafter | None) -> bool:
    """Whether the drafter reads the target's hidden states (vLLM's ``use_eagle``, 0.32).

    Behind a chunk boundary such a drafter's KV depends on the next token, so vLLM has it compute the
    last cached block anew (vllm/v1/core/kv_cache_coordinator.py).
    """
    return drafter is not None and drafter.kind not in ("draft_model", "ngram")


def _tree(policy: Policy) -> Tree | None:
    """The policy's draft tree, unless it is a chain."""
    if policy.tree is None or policy.tree.width == 1:
        return None
    if policy.wants_confidence:
        raise InputError("a tree policy asks for confidence, which is known for chains alone; ask for none")
    return policy.tree


def _holes(
    setup: Setup, drafter: Drafter | None, scheduler: Scheduler, policy: Policy, depth: int
) -> Holes | None:
    """What undrafted steps do to acceptance; nothing to a drafter that keeps no KV."""
    if drafter is None or drafter.kind == "ngram" or policy.acceptance_loss == 0:
        return None
    return Holes(scheduler.batch, scheduler.arena, setup.seed, policy.acceptance_loss, depth)


def _draw(processes: tuple[AcceptanceProcess, ...], sequence: Sequence) -> Path:
    process = processes[sequence.class_id]
    return process.path(sequence.request, sequence.prompt_tokens, sequence.output_tokens)


def kv_blocks(engine: EngineConfig, profile: Profile, drafter: Drafter | None) -> int:
    """Usable KV blocks: as configured, or what the memory holds; less the null block."""
    if engine.kv_blocks is not None:
        blocks = engine.kv_blocks
    elif engine.kv_cache_memory is not None:
        blocks = blocks_in(engine.kv_cache_memory, profile, drafter, engine.block_size)
    else:
        blocks = blocks_in_memory(profile, drafter, engine.block_size, engine.gpu_memory_utilization)
    return blocks - int(engine.behaviour.null_block)


def _lookahead(drafter: Drafter | None, depth: int) -> int:
    """KV slots reserved past the scheduled tokens (vllm/config/vllm.py, num_lookahead_tokens, 0.32).

    A parallel drafter is taken to be DFlash, which has one slot more.
    """
    if drafter is None or drafter.kind == "ngram":
        return 0
    return depth + (drafter.kind == "parallel")


def _slots(drafter: Drafter | None, depth: int) -> int:
    """Budget tokens a drafter costs per scheduled sequence (vllm/config/speculative.py, 0.32)."""
    kind = drafter.kind if drafter else "ngram"
    return {"draft_model": 1, "parallel": depth}.get(kind, 0)


def _check_fits(setup: Setup, scheduler: Scheduler, depth: int) -> None:
    """Refuse a request that could never run, instead of retrying it for ever."""
    r, engine = setup.requests, setup.engine
    if scheduler.budget <= scheduler.slots:
        raise InputError(
            f"max_num_batched_tokens {scheduler.budget} leaves no token beside the drafter's "
            f"{scheduler.slots} slots per sequence; raise it"
        )
    longest_prompt = int(r.prompt_tokens.max(initial=0))
    if not engine.behaviour.chunked_prefill and longest_prompt > scheduler.budget - scheduler.slots:
        raise InputError(
            f"a prompt of {longest_prompt} tokens is not cut to chunks (chunked_prefill: false) and a step "
            f"takes {scheduler.budget - scheduler.slots}; raise max_num_batched_tokens or set chunked_prefill"
        )
    if scheduler.cache is not None and scheduler.padding >= scheduler.budget - scheduler.slots:
        raise InputError(
            f"max_num_batched_tokens {scheduler.budget} is less than a padded decode takes: vLLM would let a "
            "request with one uncached token wait for ever; raise it, or set pad_new_decodes: false"
        )
    if not len(r):
        return
    if int(r.prompt_tokens.max()) >= engine.max_model_len:
        raise InputError(
            f"a prompt of {int(r.prompt_tokens.max())} tokens does not fit max_model_len "
            f"{engine.max_model_len}; raise it or limit the prompt lengths"
        )
    longest = int(np.minimum(r.prompt_tokens + r.output_tokens, engine.max_model_len).max())
    slots = min(longest + depth + scheduler.lookahead, engine.max_model_len)
    need = -(-slots // engine.block_size) + scheduler.state_blocks
    if need > scheduler.pool.capacity:
        raise InputError(
            f"a request of {longest} tokens needs {need} KV blocks and the replica has "
            f"{scheduler.pool.capacity}; raise kv_blocks or gpu_memory_utilization, or limit the lengths"
        )


def collect(setup: Setup, replica: Replica) -> RunRecords:
    """Records of a finished run, requests in order of intended arrival."""
    requests = replica.journal.requests.to_arrays()
    for name in ("first_token_ns", "finish_ns") if setup.engine.answer_time else ():
        requests[name] = np.where(requests[name] >= 0, requests[name] + setup.engine.answer_time, -1)
    gaps = np.frombuffer(replica.journal.gaps, dtype=np.int64).reshape(-1, 3)
    capacity = replica.scheduler.pool.capacity
    return records_of(setup, requests, replica.journal.steps.to_arrays(), gaps, capacity)


def records_of(setup: Setup, requests: Columns, steps: Columns, gaps: Int64, kv_blocks: int) -> RunRecords:
    """Records of one replica from what was written down, requests put in order of intended arrival.

    ``gaps`` has a row per gap between streamed chunks: its length, how often, and when.
    """
    order = np.argsort(requests["request"], kind="stable")
    arrivals = setup.requests.arrival_ns
    timed_out = setup.requests.timed_out(requests["request"])
    return RunRecords(
        requests={name: values[order] for name, values in requests.items()},
        steps=steps,
        chunk_gaps=(gaps[:, 0].copy(), gaps[:, 1].copy(), gaps[:, 2].copy()),
        unfinished=len(arrivals) - len(order) - timed_out,
        timed_out=timed_out,
        classes=setup.requests.classes,
        last_arrival_ns=int(arrivals.max(initial=0)),
        kv_blocks_total=kv_blocks,
        max_num_seqs=setup.engine.max_num_seqs,
    )
