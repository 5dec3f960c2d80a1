"""A scenario in, a comparison out: every cell of the sweep under every policy and every seed.

Each (cell, policy, seed) is one independent run; the same run gives the same numbers whichever
process makes it, so results do not depend on the number of workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from pathlib import Path

import numpy as np

from calibrate.profile import Profile, load_profile
from sim.acceptance.base import AcceptanceProcess
from sim.acceptance.build import build_process
from sim.acceptance.config import IidAcceptance
from sim.cost.breakdown import breakdown_ns
from sim.cost.work import step_bytes, step_flops
from sim.engine.simulate import Setup, simulate
from sim.policies.config import Bounds, PolicyConfig
from sim.policies.custom import CustomConfig
from sim.results import compare
from sim.results.metrics import Metrics, measure
from sim.results.run_records import RunRecords
from sim.results.store import write_run
from sim.scenario.load import expand
from sim.scenario.model import Cell, Scenario
from sim.workload.build import build_requests

NO_DRAFTS = IidAcceptance(process="iid", alpha=0.0)
"""Stands in for the acceptance of a scenario that never drafts."""


@dataclass(frozen=True)
class Task:
    """One run to make: a cell, a policy of it, a seed, and a folder for its records or ``None``."""

    cell: Cell
    policy: PolicyConfig
    seed: int
    folder: Path | None


@dataclass(frozen=True)
class Finished:
    """What one run gave: its metrics, where its time went, and steps outside the measured domain."""

    metrics: Metrics
    breakdown_ns: dict[str, float]
    extrapolated_share: float


@dataclass(frozen=True)
class Results:
    """All runs of a scenario, in the order of cells, then policies, then seeds."""

    scenario: Scenario
    comparison: compare.Comparison
    runs: dict[tuple[str, str, int], Finished]
    warnings: tuple[str, ...]


def run_scenario(
    scenario: Scenario,
    jobs: int = 1,
    out: Path | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Results:
    """Run every cell, policy and seed; with ``out``, records go to ``out/runs/cell/policy/seed``.

    ``jobs`` is the number of worker processes. ``progress`` is called with (finished, total).
    Raises ``InputError`` or ``ProfileError`` when a run cannot be set up.
    """
    cells = expand(scenario)
    tasks = [
        Task(cell, policy, seed, _folder(scenario, out, cell, policy, seed))
        for cell, policy, seed in product(cells, scenario.policies, scenario.run.seeds)
    ]
    runs: dict[tuple[str, str, int], Finished] = {}
    progress(0, len(tasks))
    with _mapper(min(jobs, len(tasks))) as run_all:
        for task, finished in zip(tasks, run_all(tasks), strict=True):
            runs[task.cell.label, task.policy.title, task.seed] = finished
            progress(len(runs), len(tasks))
    return Results(scenario, _comparison(scenario, cells, runs), runs, _warnings(runs))


@contextmanager
def _mapper(jobs: int) -> Iterator[Callable[[list[Task]], Iterator[Finished]]]:
    """``map`` over tasks, here or in worker processes; results come in the order of the tasks."""
    if jobs <= 1:
        yield lambda tasks: map(run_task, tasks)
        return
    pool = ProcessPoolExecutor(jobs)
    try:
        yield lambda tasks: pool.map(run_task, tasks)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _folder(
    scenario: Scenario, out: Path | None, cell: Cell, policy: PolicyConfig, seed: int
) -> Path | None:
    if out is None or scenario.run.records != "all":
        return None
    return out / "runs" / _file_name(cell.label) / _file_name(policy.title) / str(seed)


def _file_name(label: str) -> str:
    """A label with only letters, digits and ``.,=()_-`` left, so that any file system takes it."""
    return "".join(c if c.isalnum() or c in ".,=()_-" else "_" for c in label)


# -- one run -------------------------------------------------------------------------------------


def run_task(task: Task) -> Finished:
    """Make one run and measure it; its records are written if the task names a folder."""
    records, setup = make_run(task.cell.scenario, task.policy, task.seed)
    if task.folder is not None:
        write_run(task.folder, records)
    steps, drafter = records.steps, setup.drafter
    metrics = measure(
        records,
        task.cell.scenario.run.warmup,
        task.cell.scenario.slos,
        step_flops(steps, setup.profile, drafter),
        step_bytes(steps, setup.profile, drafter),
    )
    beyond = float(np.mean(steps["padded_tokens"] > setup.profile.max_tokens)) if len(steps["tokens"]) else 0.0
    return Finished(metrics, breakdown_ns(steps, setup.profile, drafter), beyond)


def make_run(scenario: Scenario, policy: PolicyConfig, seed: int) -> tuple[RunRecords, Setup]:
    """Simulate one policy under one seed; returns the records and what they were made from."""
    profile = _profile(scenario.profile_path)
    drafter = None if policy.policy == "off" else scenario.drafter_of(profile)
    asked = scenario.run.max_depth
    depth = min(policy.depth if asked is None else asked, drafter.max_depth) if drafter else 0
    setup = Setup(
        requests=build_requests(scenario.workload, seed, scenario.locate),
        profile=profile,
        drafter=drafter,
        engine=scenario.engine,
        processes=_processes(scenario, seed, depth),
        max_depth=depth,
    )
    return simulate(setup, _located(policy, scenario).build(Bounds(depth))), setup


@lru_cache(maxsize=8)
def _profile(path: Path) -> Profile:
    return load_profile(path)


def _processes(scenario: Scenario, seed: int, depth: int) -> tuple[AcceptanceProcess, ...]:
    """One acceptance process per request class."""
    return tuple(
        build_process(config or NO_DRAFTS, seed, max(depth, 1), scenario.locate)
        for config in scenario.acceptances
    )


def _located(policy: PolicyConfig, scenario: Scenario) -> PolicyConfig:
    """A policy of the user's own is looked for from the scenario's folder."""
    if isinstance(policy, CustomConfig):
        return policy.model_copy(update={"search": str(scenario.folder / policy.search)})
    return policy


# -- all runs ------------------------------------------------------------------------------------


def _comparison(
    scenario: Scenario, cells: tuple[Cell, ...], runs: dict[tuple[str, str, int], Finished]
) -> compare.Comparison:
    """The runs as cells of policies, ready for tables and verdicts."""

    def result(cell: Cell, policy: PolicyConfig) -> compare.PolicyResult:
        metrics = tuple(runs[cell.label, policy.title, seed].metrics for seed in scenario.run.seeds)
        return compare.PolicyResult(policy.title, metrics, bound=policy.policy == "oracle")

    return compare.Comparison(
        cells=tuple(
            compare.Cell(cell.label, tuple(result(cell, policy) for policy in scenario.policies))
            for cell in cells
        ),
        baseline=scenario.baseline,
        metric=scenario.run.metric_name,
    )


def _warnings(runs: dict[tuple[str, str, int], Finished]) -> tuple[str, ...]:
    """What a reader must know before trusting the numbers."""
    beyond = {key: run.extrapolated_share for key, run in runs.items() if run.extrapolated_share > 0}
    if not beyond:
        return ()
    (cell, policy, _), share = max(beyond.items(), key=lambda item: item[1])
    return (
        f"steps larger than the profile measured were extrapolated in {len(beyond)} of {len(runs)} runs "
        f"(most: {share:.1%} of the steps of {policy} at {cell})",
    )
