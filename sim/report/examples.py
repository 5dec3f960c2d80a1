"""The runs that the report looks into, step by step: those of the first seed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import simpy

from sim.engine.replica import Replica
from sim.engine.simulate import Setup, build_replica
from sim.policies.config import PolicyConfig
from sim.policies.off import Off
from sim.policies.static import Static
from sim.report.layout import Place
from sim.results.run_records import RunRecords
from sim.sweep.prepare import make_run, prepare

if TYPE_CHECKING:
    from sim.sweep.results import Results


@dataclass(frozen=True)
class Example:
    """One run: its records and what it was made from."""

    records: RunRecords
    setup: Setup


class Examples:
    """Runs by cell and policy, under the scenario's first seed.

    Records that were not kept are made again: the same scenario and seed give the same bytes.
    """

    def __init__(self, results: Results) -> None:
        self._results = results
        self._found: dict[tuple[str, str], Example] = {}

    @property
    def seed(self) -> int:
        """The first seed."""
        return self._results.scenario.run.seeds[0]

    def of(self, place: Place, policy: str) -> Example:
        """The run of one policy at one cell."""
        key = (place.cell.label, policy)
        if key not in self._found:
            self._found[key] = self._read(place, _config(place, policy))
        return self._found[key]

    def _read(self, place: Place, policy: PolicyConfig) -> Example:
        records = self._results.records(place.cell.label, policy.title, self.seed)
        if records is None:
            return Example(*make_run(place.cell.scenario, policy, self.seed))
        return Example(records, prepare(place.cell.scenario, policy, self.seed))


def deepest_setup(place: Place, seed: int) -> Setup:
    """What a cell's runs are made from, at the largest depth that one of its policies asks for."""
    scenario = place.cell.scenario
    return prepare(scenario, max(scenario.policies, key=lambda policy: policy.depth), seed)


def replica_of(setup: Setup) -> Replica:
    """The replica of a run before its first request: what the engine charges, and what memory it has."""
    policy = Static(setup.max_depth) if setup.drafter else Off()
    return build_replica(simpy.Environment(), setup, policy)


def _config(place: Place, title: str) -> PolicyConfig:
    return next(policy for policy in place.cell.scenario.policies if policy.title == title)
