"""Whether a scheduler's books agree with each other: for tests, after any step or event."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sim.engine.batch import COMPUTED, FRESH, GRANTED, HELD, TOKENS
from sim.errors import SimulationError

if TYPE_CHECKING:
    from sim.engine.scheduler import Scheduler


def check_scheduler(scheduler: Scheduler) -> None:
    """Raise ``SimulationError`` when memory, budget, positions or the queue contradict each other."""
    batch = scheduler.batch
    scheduler.pool.check_integrity(int(batch.row(HELD).sum()))
    if scheduler.cache is not None:
        scheduler.cache.check_batch(batch)
    if batch.n > scheduler.max_num_seqs or int(batch.row(GRANTED).sum()) > scheduler.budget:
        raise SimulationError(f"{batch.n} sequences or their tokens exceed the step's limits")
    if scheduler.prefilling != int(batch.row(FRESH).sum()):
        raise SimulationError(f"{scheduler.prefilling} sequences are said to prefill")
    if np.any(batch.row(COMPUTED) >= batch.row(TOKENS)) or len(batch.live) != batch.n:
        raise SimulationError("a running sequence has nothing left to compute")
    _check_queue(scheduler)
    _check_promises(scheduler)


def _check_queue(scheduler: Scheduler) -> None:
    """No request is in two places, and the host holds what waiting sequences keep there."""
    waiting = [sequence.request for sequence in scheduler.waiting]
    if len(set(waiting)) < len(waiting) or not scheduler.batch.live.keys().isdisjoint(waiting):
        raise SimulationError("a request waits twice, or waits and runs")
    if any(not 0 <= sequence.kept_tokens < sequence.tokens for sequence in scheduler.waiting):
        raise SimulationError("a waiting sequence has more KV on the host than it has tokens")
    if any(sequence.kept_tokens for sequence in scheduler.batch.live.values()):
        raise SimulationError("a running sequence has KV on the host")
    held = sum(scheduler.host_blocks(sequence.kept_tokens) for sequence in scheduler.waiting)
    if scheduler.host is not None:
        scheduler.host.check_integrity(held)
    elif held:
        raise SimulationError("a waiting sequence has KV on a host without memory for it")


def _check_promises(scheduler: Scheduler) -> None:
    """Blocks that cover whole answers are free, so that nobody will be preempted."""
    reserve = scheduler.reserve
    if reserve is not None and reserve.share == 1 and reserve.promised(scheduler.batch) > scheduler.pool.free:
        raise SimulationError("more blocks are promised to running sequences than are free")
