"""What a sweep gives: every run, measured; their comparison; and what the numbers stand on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from calibrate.profile import Profile
from sim import __version__
from sim.errors import InputError
from sim.policies.config import PolicyConfig
from sim.results import compare
from sim.results.metrics import Metrics
from sim.results.run_records import RunRecords
from sim.results.store import summary
from sim.scenario.model import Cell, Scenario
from sim.scenario.words import did_you_mean
from sim.sweep.folder import RunFolder
from sim.sweep.frames import Table, rows_of
from sim.sweep.prepare import make_run, profile_at

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

T = TypeVar("T")
RunKey = tuple[str, str, int]
"""Label of the cell, label of the policy, seed."""


@dataclass(frozen=True)
class Finished:
    """What one run gave: its metrics, where its time went, and steps outside the measured domain."""

    metrics: Metrics
    breakdown_ns: dict[str, float]
    extrapolated_share: float


@dataclass(frozen=True)
class Results:
    """All runs of a scenario by (cell, policy, seed), and their comparison.

    ``cells`` are the cells with their settings, ``profiles`` the profiles by the name that stands
    in the scenario, ``about`` what the numbers stand on, and ``made`` how many runs were not there
    before. ``folders`` says where runs are kept, if they are.
    """

    scenario: Scenario
    cells: tuple[Cell, ...]
    comparison: compare.Comparison
    runs: dict[RunKey, Finished]
    profiles: dict[str, Profile]
    about: dict[str, Any]
    warnings: tuple[str, ...]
    made: int = 0
    folders: Mapping[RunKey, RunFolder] = field(default_factory=dict, repr=False)

    def cell(self, label: str | None = None) -> Cell:
        """The cell of that label, the first without one; raises ``InputError`` naming those there are."""
        return _named(self.cells, lambda cell: cell.label, label, "cell")

    def policy(self, cell: str | None = None, title: str | None = None) -> PolicyConfig:
        """The policy of that label in a cell, the first without one; raises ``InputError``."""
        return _named(self.cell(cell).scenario.policies, lambda policy: policy.title, title, "policy")

    def seeds(self, cell: str | None = None) -> tuple[int, ...]:
        """The seeds that a cell was run with: all of the scenario's, or fewer where it stopped early."""
        label = self.cell(cell).label
        return tuple(dict.fromkeys(seed for at, _, seed in self.runs if at == label))

    def profile(self, cell: str | None = None) -> Profile:
        """The profile that a cell's steps were timed by."""
        return self.profiles[self.cell(cell).scenario.profile or ""]

    def records(self, cell: str, policy: str, seed: int) -> RunRecords | None:
        """Every request and step of one run; ``None`` where records were not kept."""
        folder = self.folders.get((cell, policy, seed))
        return None if folder is None else folder.records()

    def requests(self, cell: str | None = None, policy: str | None = None, seed: int | None = None) -> Table:
        """One row per finished request of a run; by default of the first cell, policy and seed.

        A run whose records were not kept is made again, which gives the same records.
        """
        return Table(dict(self._records(cell, policy, seed).requests))

    def steps(self, cell: str | None = None, policy: str | None = None, seed: int | None = None) -> Table:
        """One row per engine step of a run, chosen as for ``requests``."""
        return Table(dict(self._records(cell, policy, seed).steps))

    def _records(self, cell: str | None, policy: str | None, seed: int | None) -> RunRecords:
        at, by = self.cell(cell), self.policy(cell, policy)
        number = self.seeds(cell)[0] if seed is None else seed
        kept = self.records(at.label, by.title, number)
        return make_run(at.scenario, by, number)[0] if kept is None else kept

    def table(self) -> Table:
        """One row per run: settings, policy, seed and every metric."""
        return rows_of(
            self.cells, {key: (run.metrics, run.extrapolated_share) for key, run in self.runs.items()}
        )

    def to_pandas(self) -> pandas.DataFrame:
        """``table()`` as a pandas frame."""
        return self.table().to_pandas()

    def to_polars(self) -> polars.DataFrame:
        """``table()`` as a Polars frame."""
        return self.table().to_polars()

    def arrow(self) -> pyarrow.Table:
        """``table()`` as an Arrow table."""
        return self.table().arrow()

    def summary(self) -> dict[str, Any]:
        """The comparison as plain data, the content of ``summary.json``."""
        found = summary(self.comparison, self.about)
        for written, cell in zip(found["cells"], self.cells, strict=True):
            written["settings"] = dict(cell.settings)
            written["seeds"] = list(self.seeds(cell.label))
            written["policies"] = [
                policy | self._more(cell.label, policy["policy"]) for policy in written["policies"]
            ]
        return {**found, "warnings": list(self.warnings)}

    def _more(self, cell: str, policy: str) -> dict[str, Any]:
        """Mean time of a policy's stable runs by term (of all, if none is), and where the runs are kept."""
        keys = [(cell, policy, seed) for seed in self.seeds(cell)]
        stable = [key for key in keys if not self.runs[key].metrics.unstable] or keys
        terms = [self.runs[key].breakdown_ns for key in stable]
        names = dict.fromkeys(name for each in terms for name in each)
        mean = {name: sum(each.get(name, 0.0) for each in terms) / len(terms) for name in names}
        kept = [self.folders[key].path.name for key in keys if key in self.folders]
        return {"breakdown_ns": mean} | ({"runs": kept} if kept else {})


def _named(items: Sequence[T], name_of: Callable[[T], str], wanted: str | None, what: str) -> T:
    if wanted is None:
        return items[0]
    for item in items:
        if name_of(item) == wanted:
            return item
    known = [name_of(item) for item in items]
    raise InputError(f"there is no {what} {wanted!r}{did_you_mean(wanted, known)}")


def compared(cell: Cell, runs: Mapping[RunKey, Finished], seeds: Sequence[int]) -> compare.Cell:
    """One cell's runs as policies over seeds."""

    def result(policy: PolicyConfig) -> compare.PolicyResult:
        metrics = tuple(runs[cell.label, policy.title, seed].metrics for seed in seeds)
        return compare.PolicyResult(policy.title, metrics, bound=policy.policy == "oracle")

    return compare.Cell(cell.label, tuple(result(policy) for policy in cell.scenario.policies))


def profiles_of(cells: Sequence[Cell]) -> dict[str, Profile]:
    """The profiles of all cells by the names that stand in the scenario."""
    named = {
        name: cell.scenario.locate_profile(name) for cell in cells for name in cell.scenario.profile_names
    }
    return {name: profile_at(path) for name, path in named.items()}


def error_of(profiles: Mapping[str, Profile]) -> float:
    """The largest relative error that one of the profiles states, 0 if none does."""
    return max(profile.error.relative if profile.error else 0.0 for profile in profiles.values())


def provenance(scenario: Scenario, cells: Sequence[Cell], profiles: Mapping[str, Profile]) -> dict[str, Any]:
    """Versions, profiles with their marks and errors, drafters, acceptance, engines and seeds."""
    settings = [cell.scenario for cell in cells]
    accepted = [config for each in settings for config in each.acceptances]
    return {
        "scenario": scenario.name,
        "leadline": __version__,
        "numpy": np.__version__,
        "profiles": [_about_profile(profile) for profile in profiles.values()],
        "drafters": list(dict.fromkeys(each.drafter for each in settings)),
        "acceptance": list(dict.fromkeys(config.process if config else "none" for config in accepted)),
        "assumptions": list(
            dict.fromkeys(text for config in accepted if config for text in config.assumptions)
        ),
        "engines": list(dict.fromkeys(each.engine.preset for each in settings)),
        "seeds": list(scenario.run.seeds),
    }


def _about_profile(profile: Profile) -> dict[str, Any]:
    error = profile.error.model_dump() if profile.error else None
    return {
        "name": profile.name,
        "kind": profile.kind,
        "created": profile.created,
        "command": profile.command,
        "error": error,
    }


def warnings_of(
    cells: Sequence[Cell], profiles: Mapping[str, Profile], runs: Mapping[RunKey, Finished]
) -> tuple[str, ...]:
    """What a reader must know before trusting the numbers."""
    return (*_refused(profiles), *_sampling(cells, profiles), *_extrapolated(runs))


def _refused(profiles: Mapping[str, Profile]) -> list[str]:
    """Profiles that their own calibration refused."""
    return [
        f"{each.name} was refused when it was measured: {reason}"
        for each in profiles.values()
        for reason in each.refused
    ]


def _sampling(cells: Sequence[Cell], profiles: Mapping[str, Profile]) -> list[str]:
    """Profiles that were measured with another way of sampling than the scenario states."""
    stated = dict.fromkeys((cell.scenario.profile or "", cell.scenario.engine.sampling) for cell in cells)
    pairs = ((profiles[name], sampling) for name, sampling in stated if sampling is not None)
    return [
        f"{profile.name} was measured with {profile.sampling} sampling and the scenario states {sampling}; "
        "acceptance and drafting take other times then"
        for profile, sampling in pairs
        if sampling != profile.sampling
    ]


def _extrapolated(runs: Mapping[RunKey, Finished]) -> list[str]:
    """Runs whose steps left the profile's measured domain."""
    beyond = {key: run.extrapolated_share for key, run in runs.items() if run.extrapolated_share > 0}
    if not beyond:
        return []
    (cell, policy, _), share = max(beyond.items(), key=lambda item: item[1])
    return [
        f"steps beyond what the profile measured were extrapolated in {len(beyond)} of {len(runs)} runs "
        f"(most: {share:.1%} of the steps of {policy} at {cell})"
    ]
