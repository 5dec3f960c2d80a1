"""The runs that the report looks into, step by step: those of one seed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import simpy

from calibrate.profile import Drafter, Profile
from sim.engine.replica import Replica
from sim.engine.simulate import Setup, build_replica
from sim.fleet.config import FleetConfig
from sim.policies.config import PolicyConfig
from sim.policies.off import Off
from sim.policies.static import Static
from sim.report.layout import Layout, Place
from sim.results.groups import of_replicas
from sim.results.run_records import RunRecords
from sim.sweep.prepare import costs, make_run, prepare

if TYPE_CHECKING:
    from sim.sweep.results import Results


@dataclass(frozen=True)
class Example:
    """One run: its records, and the costs that it was charged."""

    records: RunRecords
    profile: Profile
    drafter: Drafter | None
    capture_sizes: tuple[int, ...]


class Examples:
    """Runs by cell and policy, all under one seed.

    Records that were not kept are made again: the same scenario and seed give the same bytes.
    """

    def __init__(self, results: Results) -> None:
        self._results = results
        self._found: dict[tuple[str, str], Example] = {}
        self._whole: dict[tuple[str, str], RunRecords] = {}
        self._setups: dict[str, Setup] = {}
        self.seed = _seed(results)
        """The first seed under which no run is unstable of a policy that is not; else the nearest to it."""

    def of(self, place: Place, policy: str) -> Example:
        """The run of one policy at one cell."""
        key = (place.cell.label, policy)
        if key not in self._found:
            self._found[key] = self._read(place, _config(place, policy))
        return self._found[key]

    def whole(self, place: Place, policy: str) -> RunRecords:
        """All records of the run of one policy at one cell."""
        key = (place.cell.label, policy)
        if key not in self._whole:
            records = self._results.records(place.cell.label, policy, self.seed)
            if records is None:
                records = make_run(place.cell.scenario, _config(place, policy), self.seed)[0]
            self._whole[key] = records
        return self._whole[key]

    def setup(self, setting: str, layout: Layout) -> Setup:
        """What the runs of a setting are made from, at the largest depth of its policies."""
        if setting not in self._setups:
            scenario = layout.of(setting)[0].cell.scenario
            deepest = max(scenario.policies, key=lambda policy: policy.depth)
            self._setups[setting] = prepare(scenario, deepest, self.seed)
        return self._setups[setting]

    def _read(self, place: Place, policy: PolicyConfig) -> Example:
        records = _of_the_policy(self.whole(place, policy.title), place.cell.scenario.fleet)
        profile, drafter = costs(place.cell.scenario, policy)
        return Example(records, profile, drafter, place.cell.scenario.engine.behaviour.capture_sizes)


def _of_the_policy(records: RunRecords, fleet: FleetConfig) -> RunRecords:
    """The run with the steps of those replicas alone that run the policy on the scenario's own profile.

    What looks into steps prices them by that profile. All steps stay where no group is so.
    """
    if records.fleet is None:
        return records
    own = [g.policy is None and g.profile is None and g.drafter is None for g in fleet.groups]
    own = [mine and group.role != "prefill" for mine, group in zip(own, fleet.groups, strict=True)]
    numbers = np.flatnonzero(np.array(own)[records.fleet.group])
    return of_replicas(records, numbers) if len(numbers) else records


def _seed(results: Results) -> int:
    """Of the seeds that every cell was run with, the first with the fewest runs that the means leave out."""
    cells, runs = results.comparison.cells, results.runs
    drawn = [(cell.load, policy) for cell in cells for policy in cell.policies]
    seeds = [s for s in results.scenario.run.seeds if all((load, p.label, s) in runs for load, p in drawn)]
    stable = [(load, policy.label) for load, policy in drawn if not policy.unstable]
    return min(seeds, key=lambda s: sum(runs[load, label, s].metrics.unstable for load, label in stable))


def replica_of(setup: Setup) -> Replica:
    """The replica of a run before its first request: what the engine charges, and what memory it has."""
    policy = Static(setup.max_depth) if setup.drafter else Off()
    return build_replica(simpy.Environment(), setup, policy)


def _config(place: Place, title: str) -> PolicyConfig:
    return next(policy for policy in place.cell.scenario.policies if policy.title == title)
