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
) -> Difference | str:
    """The exported policy against the wished one, paired over seeds; or why there is no difference."""
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
    found = against(ComparedCell(cell.label, results), wished.title, metric, error)[1]
    if found is None:
        return _unstable(*results)
    return "what it loses has no data to tell by" if found.verdict == "no data" else found


def _unstable(wished: PolicyResult, exported: PolicyResult) -> str:
    if wished.unstable and exported.unstable:
        return "simulated, it is unstable at this load, as the policy itself is"
    if exported.unstable:
        return "simulated, it is unstable at this load, and the policy itself is not"
    return "what it loses cannot be told: the policy itself is unstable at this load"
