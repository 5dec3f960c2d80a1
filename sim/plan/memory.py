"""KV memory of one replica, and the requests that it holds at once, with the drafter and without."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import simpy

from sim.engine.simulate import Setup, build_replica
from sim.policies.base import Policy
from sim.policies.off import Off


@dataclass(frozen=True)
class Memory:
    """KV blocks, and requests of mean length that they hold when all are about to end.

    ``requests`` is what memory alone allows; the engine takes at most ``max_num_seqs``.
    """

    blocks: int
    requests: int


@dataclass(frozen=True)
class Held:
    """Memory under a policy, and what it would be with no drafter loaded."""

    with_drafter: Memory
    without: Memory


def held(setup: Setup, policy: Policy) -> Held:
    """Memory of a replica, as its engine counts it: weights, lookahead and state included."""
    return Held(_memory(setup, policy), _memory(replace(setup, drafter=None, max_depth=0), Off()))


def _memory(setup: Setup, policy: Policy) -> Memory:
    scheduler = build_replica(simpy.Environment(), setup, policy).scheduler
    r = setup.requests
    tokens = math.ceil(float(np.mean(r.prompt_tokens + r.output_tokens))) + scheduler.lookahead
    each = -(-tokens // scheduler.block_size) + scheduler.state_blocks
    return Memory(scheduler.pool.capacity, scheduler.pool.capacity // each)
