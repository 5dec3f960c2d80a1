"""Which run is meant: a scenario or a results folder, and in it a load, a policy and a seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from sim.errors import InputError
from sim.policies.config import PolicyConfig
from sim.results.run_records import RunRecords
from sim.scenario.load import expand, find_scenario, load_scenario
from sim.scenario.model import Cell, Scenario
from sim.scenario.words import did_you_mean

if TYPE_CHECKING:
    from sim.sweep.results import Results

T = TypeVar("T")


@dataclass(frozen=True)
class Source:
    """A scenario, and the results of its runs if a folder was given."""

    scenario: Scenario
    results: Results | None

    def cell(self, label: str | None) -> Cell:
        """The load of that label; the only one, or the first, when none is given."""
        cells = expand(self.scenario) if self.results is None else self.results.cells
        return chosen("--cell", label, cells, lambda cell: cell.label)

    def policy(self, cell: Cell, label: str | None) -> PolicyConfig:
        """The policy of that label; the last one when none is given."""
        policies = cell.scenario.policies
        last = policies[-1].title
        return chosen("--policy", last if label is None else label, policies, lambda policy: policy.title)

    def seed(self, cell: Cell, seed: int | None) -> int:
        """The seed, or the scenario's first; raises ``InputError`` if the folder has no run of it."""
        if seed is None:
            return self.scenario.run.seeds[0]
        if self.results is not None and seed not in (known := self.results.seeds(cell.label)):
            seeds = ", ".join(map(str, known))
            raise InputError(f"--seed: there is no run of seed {seed} at {cell.label}; seeds are {seeds}")
        return seed

    def records(self, cell: Cell, policy: PolicyConfig, seed: int) -> RunRecords:
        """The run's records: as kept in the folder, or made now, which gives the same."""
        from sim.sweep.prepare import make_run

        kept = None
        if self.results is not None:
            kept = self.results.records(cell.label, policy.title, seed)
        return make_run(cell.scenario, policy, seed)[0] if kept is None else kept


def open_source(named: str) -> Source:
    """The scenario of a file, of a shipped name, or of a results folder."""
    if Path(named).is_dir():
        from sim.sweep.saved import open_results

        results = open_results(Path(named))
        return Source(results.scenario, results)
    return Source(load_scenario(find_scenario(named)), None)


def chosen(option: str, label: str | None, among: Sequence[T], name: Callable[[T], str]) -> T:
    """The one of that name, the first without a name; raises ``InputError`` naming those that exist."""
    if label is None:
        return among[0]
    known = [name(each) for each in among]
    if label not in known:
        raise InputError(f"{option}: there is no {label!r}{did_you_mean(label, known)}")
    return among[known.index(label)]
