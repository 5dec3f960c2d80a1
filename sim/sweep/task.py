"""One run: made anywhere, kept in the results folder as soon as it is finished."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibrate.profile import Drafter, Profile
from sim.cost.breakdown import breakdown_ns
from sim.cost.domain import extrapolated_share
from sim.cost.work import step_bytes, step_flops
from sim.policies.config import PolicyConfig
from sim.results.run_records import RunRecords
from sim.results.window import own_cut
from sim.scenario.model import Cell
from sim.sweep.folder import Facts, RunFolder
from sim.sweep.prepare import costs, make_run


@dataclass(frozen=True)
class Task:
    """One run to make: a cell, a policy of it, a seed, and where it is kept, if anywhere."""

    cell: Cell
    policy: PolicyConfig
    seed: int
    folder: RunFolder | None = None

    @property
    def key(self) -> tuple[str, str, int]:
        """Labels of the cell and the policy, and the seed."""
        return self.cell.label, self.policy.title, self.seed

    @property
    def keeps_records(self) -> bool:
        """Whether the scenario wants every request and step kept, beside the metrics."""
        return self.cell.scenario.run.records == "all"

    @property
    def is_there(self) -> bool:
        """Whether its folder holds the run, with its records if they are wanted."""
        folder = self.folder
        if folder is None or folder.facts() is None:
            return False
        return folder.has_records or not self.keeps_records


@dataclass(frozen=True)
class Made:
    """One finished run before it is measured: records, FLOPs and bytes of every step, and its facts."""

    records: RunRecords
    flops: NDArray[np.float64]
    bytes: NDArray[np.float64]
    facts: Facts


def run_task(task: Task) -> Made:
    """Make one run, and keep it where the task says."""
    scenario = task.cell.scenario
    records, setup = make_run(scenario, task.policy, task.seed)
    made = _costed(records, setup.profile, setup.drafter, scenario.drafter)
    if task.folder is not None:
        task.folder.keep(records, made.facts)
    return made


def read_or_make(task: Task) -> Made:
    """A run from its folder, or made again if its records are not there."""
    records = task.folder.records() if task.folder is not None else None
    if records is None:
        return run_task(task)
    profile, drafter = costs(task.cell.scenario, task.policy)
    return _costed(records, profile, drafter, task.cell.scenario.drafter)


def _costed(records: RunRecords, profile: Profile, drafter: Drafter | None, named: str | None) -> Made:
    steps = records.steps
    return Made(
        records,
        step_flops(steps, profile, drafter),
        step_bytes(steps, profile, drafter),
        Facts(
            cut=own_cut(records),
            breakdown_ns=breakdown_ns(steps, profile, drafter),
            extrapolated_share=extrapolated_share(steps, profile, named if drafter else None),
        ),
    )
