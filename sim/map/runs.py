"""The simulations of a map: groups of runs that share load, lengths and seed, in worker processes.

Within a group every policy meets the same requests with the same luck, whatever the acceptance;
plain decoding, which meets no draft, is run once for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from sim.ahead.notice import adopt, watched
from sim.errors import InputError
from sim.map.place import Place, setup_at
from sim.policies.config import PolicyConfig
from sim.results.metrics import Metrics, measure
from sim.results.run_records import RunRecords
from sim.results.window import common_warmup
from sim.scenario.model import Scenario, speculates
from sim.sweep.prepare import run_setup


@dataclass(frozen=True)
class Group:
    """One seed at places that differ in acceptance alone."""

    places: tuple[Place, ...]
    seed: int


Found = list[list[Metrics]]
"""Metrics by place, then by policy."""
RunGroups = Callable[[Sequence[Group]], Iterator[Found]]


@contextmanager
def workers(scenario: Scenario, policies: Sequence[PolicyConfig], jobs: int) -> Iterator[RunGroups]:
    """Runs groups here or in ``jobs`` processes; what they find comes in the order of the groups.

    Raises ``InputError`` if a worker dies.
    """
    run = partial(run_group, scenario, tuple(policies))
    if jobs <= 1:
        yield partial(map, run)
        return
    pool = ProcessPoolExecutor(jobs, initializer=adopt, initargs=(watched(),))
    try:
        yield partial(pool.map, run)
    except BrokenProcessPool:
        raise InputError(
            "a worker died while it made a point; if memory ran out, take fewer --jobs or a lower load"
        ) from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def run_group(scenario: Scenario, policies: Sequence[PolicyConfig], group: Group) -> Found:
    """Every policy at every place of a group, measured with one warm-up cut per place."""
    plain: dict[str, RunRecords] = {}

    def records(place: Place, policy: PolicyConfig) -> RunRecords:
        if speculates(policy):
            return run(scenario, place, policy, group.seed)
        if policy.title not in plain:
            plain[policy.title] = run(scenario, place.plain, policy, group.seed)
        return plain[policy.title]

    return [_measured(scenario, [records(place, policy) for policy in policies]) for place in group.places]


def run(scenario: Scenario, place: Place, policy: PolicyConfig, seed: int) -> RunRecords:
    """One run."""
    return run_setup(scenario, policy, setup_at(scenario, place, policy, seed))


def capacity_per_s(scenario: Scenario, place: Place, seed: int) -> float:
    """Requests per second of plain decoding with as many in flight as the engine takes.

    With a full memory fewer than ``max_num_seqs`` run; the rest wait, which costs nothing here.
    """
    from sim.policies.off import OffConfig

    clients = min(scenario.engine.max_num_seqs, MOST_CLIENTS)
    full = replace(place.plain, in_flight=clients, requests=4 * clients)
    return measure(run(scenario, full, OffConfig(policy="off"), seed))["requests_per_s"]


MOST_CLIENTS = 256


def _measured(scenario: Scenario, group: list[RunRecords]) -> list[Metrics]:
    warmup = common_warmup(group, "mser5")
    return [measure(records, warmup, scenario.slos) for records in group]
