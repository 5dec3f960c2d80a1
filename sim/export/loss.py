"""What an engine's nearest settings lose against the policy that was wished for, by simulation."""

from __future__ import annotations

from collections.abc import Sequence

from sim.policies.config import PolicyConfig
from sim.results.compare import Cell as ComparedCell
from sim.results.compare import Difference, PolicyResult, against
from sim.scenario.model import Cell
from sim.sweep.results import Finished, RunKey
from sim.sweep.run import measured
from sim.sweep.task import Task, run_task

LABEL = "as exported"


def loss(
    cell: Cell,
    wished: PolicyConfig,
    stands_for: PolicyConfig,
    seeds: Sequence[int],
    metric: str,
    error: float,
) -> Difference | None:
    """The exported policy against the wished one, paired over seeds; ``None`` if one is unstable."""
    exported = stands_for.model_copy(update={"label": LABEL})
    pair = (wished, exported)
    runs: dict[RunKey, Finished] = {}
    for seed in seeds:
        tasks = [Task(cell, policy, seed) for policy in pair]
        runs |= measured(tasks, [run_task(task) for task in tasks])
    results = tuple(
        PolicyResult(policy.title, tuple(runs[cell.label, policy.title, seed].metrics for seed in seeds))
        for policy in pair
    )
    return against(ComparedCell(cell.label, results), wished.title, metric, error)[1]
