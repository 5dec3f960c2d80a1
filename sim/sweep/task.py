"""One run: made anywhere, kept in the results folder as soon as it is finished."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sim.cost.breakdown import breakdown_ns
from sim.cost.domain import extrapolated_share
from sim.cost.work import step_bytes, step_flops
from sim.policies.config import PolicyConfig
from sim.results.run_records import RunRecords
from sim.results.window import own_cut
from sim.scenario.model import Cell
from sim.sweep.folder import Facts, RunFolder
from sim.sweep.posts import parts_of
from sim.sweep.prepare import make_run


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
    records, _ = make_run(scenario, task.policy, task.seed)
    made = _costed(records, task)
    if task.folder is not None:
        task.folder.keep(records, made.facts)
    return made


def read_or_make(task: Task) -> Made:
    """A run from its folder, or made again if its records are not there."""
    records = task.folder.records() if task.folder is not None else None
    if records is None:
        return run_task(task)
    return _costed(records, task)


def _costed(records: RunRecords, task: Task) -> Made:
    """Work and time of every step, each by the profile of the replica that made it."""
    steps = records.steps
    count = len(steps["tokens"])
    flops, moved = np.zeros(count), np.zeros(count)
    terms: dict[str, float] = {}
    beyond = 0.0
    for part in parts_of(task.cell.scenario, task.policy, records):
        mine, at = part.of(steps), slice(None) if part.rows is None else part.rows
        flops[at] = step_flops(mine, part.profile, part.drafter)
        moved[at] = step_bytes(mine, part.profile, part.drafter)
        for name, ns in breakdown_ns(mine, part.profile, part.drafter).items():
            terms[name] = terms.get(name, 0.0) + ns
        beyond += extrapolated_share(mine, part.profile, part.named) * len(mine["tokens"]) / max(count, 1)
    return Made(records, flops, moved, Facts(own_cut(records), terms, beyond))
