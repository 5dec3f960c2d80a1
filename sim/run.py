"""A scenario in, a comparison out: every cell of the sweep under every policy and every seed.

Each (cell, policy, seed) is one independent run; the same run gives the same numbers whichever
process makes it, so results do not depend on the number of workers.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice, product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrate.profile import Profile, load_profile
from sim import __version__
from sim.acceptance.base import AcceptanceProcess
from sim.acceptance.build import build_process
from sim.acceptance.config import IidAcceptance
from sim.cost.breakdown import breakdown_ns
from sim.cost.domain import extrapolated_share
from sim.cost.work import step_bytes, step_flops
from sim.engine.simulate import Setup, simulate
from sim.errors import InputError, LeadlineError
from sim.policies.config import Bounds, PolicyConfig
from sim.policies.custom import CustomConfig
from sim.results import compare
from sim.results.metrics import Metrics, measure
from sim.results.run_records import RunRecords
from sim.results.store import write_run
from sim.results.window import common_warmup
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
class Made:
    """One finished run before it is measured: records, FLOPs and bytes of every step, breakdown.

    ``extrapolated_share`` is the share of steps larger than the profile's measured domain.
    """

    records: RunRecords
    flops: NDArray[np.float64]
    bytes: NDArray[np.float64]
    breakdown_ns: dict[str, float]
    extrapolated_share: float


@dataclass(frozen=True)
class Finished:
    """What one run gave: its metrics, where its time went, and steps outside the measured domain."""

    metrics: Metrics
    breakdown_ns: dict[str, float]
    extrapolated_share: float


@dataclass(frozen=True)
class Results:
    """All runs of a scenario by (cell, policy, seed), and their comparison."""

    scenario: Scenario
    comparison: compare.Comparison
    runs: dict[tuple[str, str, int], Finished]
    warnings: tuple[str, ...]

    @property
    def about(self) -> dict[str, Any]:
        """What the numbers stand on, for ``summary.json``: versions, profiles, acceptance, seeds."""
        return provenance(self.scenario)


def run_scenario(
    scenario: Scenario,
    jobs: int = 1,
    out: Path | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
    on_cell: Callable[[compare.Comparison], None] = lambda comparison: None,
) -> Results:
    """Run every cell, policy and seed.

    With ``out``, records go to numbered folders ``out/runs/cell/policy/seed``. ``jobs`` is the
    number of worker processes. ``progress`` is called with (finished, total), ``on_cell`` with the
    comparison of each cell as soon as its runs are there. Raises ``InputError`` or ``ProfileError``
    when a run cannot be set up.
    """
    cells = expand(scenario)
    seeds = scenario.run.seeds
    tasks = [
        Task(cell, policy, seed, None if out is None else _folder(out, i, cell, j, policy, seed))
        for i, cell in enumerate(cells)
        for seed in seeds
        for j, policy in enumerate(cell.scenario.policies)
    ]
    runs: dict[tuple[str, str, int], Finished] = {}
    compared: list[compare.Cell] = []
    progress(0, len(tasks))
    with _mapper(min(jobs, len(tasks))) as run_all:
        made = run_all(tasks)
        for cell, seed in product(cells, seeds):
            group = list(islice(made, len(cell.scenario.policies)))
            for policy, run in zip(cell.scenario.policies, measured(cell.scenario, group), strict=True):
                runs[cell.label, policy.title, seed] = run
            progress(len(runs), len(tasks))
            if seed == seeds[-1]:
                compared.append(_compared(cell, runs))
                on_cell(_comparison(scenario, cells, compared[-1:]))
    warnings = (*_profile_warnings(cells), *_sampling_warnings(cells), *_warnings(runs))
    return Results(scenario, _comparison(scenario, cells, compared), runs, warnings)


def measured(scenario: Scenario, group: list[Made]) -> list[Finished]:
    """Measure the runs of all policies of one cell and seed, with one warm-up cut for all of them."""
    warmup = common_warmup([run.records for run in group], scenario.run.warmup)
    return [
        Finished(
            measure(run.records, warmup, scenario.slos, run.flops, run.bytes),
            run.breakdown_ns,
            run.extrapolated_share,
        )
        for run in group
    ]


@contextmanager
def _mapper(jobs: int) -> Iterator[Callable[[list[Task]], Iterator[Made]]]:
    """``map`` over tasks, here or in worker processes; results come in the order of the tasks."""
    if jobs <= 1:
        yield lambda tasks: map(run_task, tasks)
        return
    pool = ProcessPoolExecutor(jobs)
    try:
        yield lambda tasks: pool.map(run_task, tasks)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _folder(out: Path, i: int, cell: Cell, j: int, policy: PolicyConfig, seed: int) -> Path | None:
    """Where a run's records go: numbered, so that labels which differ in odd characters stay apart."""
    if cell.scenario.run.records != "all":
        return None
    return out / "runs" / f"{i}-{_file_name(cell.label)}" / f"{j}-{_file_name(policy.title)}" / str(seed)


def _file_name(label: str) -> str:
    """A label with only letters, digits and ``.,=()_-`` left, so that any file system takes it."""
    return "".join(c if c.isalnum() or c in ".,=()_-" else "_" for c in label)


# -- one run -------------------------------------------------------------------------------------


def run_task(task: Task) -> Made:
    """Make one run; its records are written if the task names a folder."""
    records, setup = make_run(task.cell.scenario, task.policy, task.seed)
    if task.folder is not None:
        write_run(task.folder, records)
    steps, profile, drafter = records.steps, setup.profile, setup.drafter
    return Made(
        records,
        step_flops(steps, profile, drafter),
        step_bytes(steps, profile, drafter),
        breakdown_ns(steps, profile, drafter),
        extrapolated_share(steps, profile, task.cell.scenario.drafter if drafter else None),
    )


def make_run(scenario: Scenario, policy: PolicyConfig, seed: int) -> tuple[RunRecords, Setup]:
    """Simulate one policy under one seed; returns the records and what they were made from."""
    setup = prepare(scenario, policy, seed)
    if not isinstance(policy, CustomConfig):
        return simulate(setup, policy.build(Bounds(setup.max_depth))), setup
    own = policy.model_copy(update={"search": str(scenario.folder / policy.search)})
    built = own.build(Bounds(setup.max_depth))
    try:
        return simulate(setup, built), setup
    except LeadlineError as error:
        raise InputError(f"policy {policy.title}: {error}") from error
    except Exception as error:
        at = traceback.extract_tb((error.__cause__ or error).__traceback__)[-1]  # SimPy raises a copy
        what = f"{type(error).__name__}: {error}"
        raise InputError(f"policy {policy.title}: {what} ({Path(at.filename).name}:{at.lineno})") from error


def prepare(scenario: Scenario, policy: PolicyConfig, seed: int) -> Setup:
    """Everything one run needs; raises what is wrong with any file that the scenario names."""
    profile = _profile(scenario.profile_path).in_mode(scenario.profile_mode)
    drafter = None if policy.policy == "off" else scenario.drafter_of(profile)
    depth = scenario.max_depth(drafter, policy)
    levels = policy.depth if policy.verified > policy.depth else depth
    return Setup(
        requests=build_requests(scenario.workload, seed, scenario.locate),
        profile=profile,
        drafter=drafter,
        engine=scenario.engine,
        processes=_processes(scenario, seed, levels),
        max_depth=depth,
        seed=seed,
        tpot_limits_ns=scenario.tpot_limits_ns,
    )


@lru_cache(maxsize=8)
def _profile(path: Path) -> Profile:
    return load_profile(path)


def _processes(scenario: Scenario, seed: int, depth: int) -> tuple[AcceptanceProcess, ...]:
    """One acceptance process per request class."""
    return tuple(
        build_process(config or NO_DRAFTS, seed, max(depth, 1), scenario.locate_acceptance)
        for config in scenario.acceptances
    )


# -- all runs ------------------------------------------------------------------------------------


def _compared(cell: Cell, runs: dict[tuple[str, str, int], Finished]) -> compare.Cell:
    """One cell's runs as policies over seeds."""
    scenario = cell.scenario

    def result(policy: PolicyConfig) -> compare.PolicyResult:
        metrics = tuple(runs[cell.label, policy.title, seed].metrics for seed in scenario.run.seeds)
        return compare.PolicyResult(policy.title, metrics, bound=policy.policy == "oracle")

    return compare.Cell(cell.label, tuple(result(policy) for policy in scenario.policies))


def _comparison(
    scenario: Scenario, cells: tuple[Cell, ...], compared: list[compare.Cell]
) -> compare.Comparison:
    """Cells under the largest error that one of their profiles states."""
    profiles = (_profile(cell.scenario.profile_path) for cell in cells)
    error = max(profile.error.relative if profile.error else 0.0 for profile in profiles)
    return compare.Comparison(tuple(compared), scenario.baseline, scenario.run.metric_name, error)


def provenance(scenario: Scenario) -> dict[str, Any]:
    """Versions, profiles with their marks and errors, drafters, acceptance, engines and seeds."""
    cells = [cell.scenario for cell in expand(scenario)]
    accepted = [config for cell in cells for config in cell.acceptances]
    return {
        "scenario": scenario.name,
        "leadline": __version__,
        "numpy": np.__version__,
        "profiles": [_about_profile(_profile(path)) for path in dict.fromkeys(c.profile_path for c in cells)],
        "drafters": list(dict.fromkeys(c.drafter for c in cells)),
        "acceptance": list(dict.fromkeys(config.process if config else "none" for config in accepted)),
        "assumptions": list(
            dict.fromkeys(text for config in accepted if config for text in config.assumptions)
        ),
        "engines": list(dict.fromkeys(c.engine.preset for c in cells)),
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


def _profile_warnings(cells: tuple[Cell, ...]) -> tuple[str, ...]:
    """Profiles that their own calibration refused."""
    profiles = [_profile(path) for path in dict.fromkeys(cell.scenario.profile_path for cell in cells)]
    return tuple(
        f"{p.name} was refused when it was measured: {reason}" for p in profiles for reason in p.refused
    )


def _sampling_warnings(cells: tuple[Cell, ...]) -> tuple[str, ...]:
    """Profiles that were measured with another way of sampling than the scenario states."""
    stated = dict.fromkeys((cell.scenario.profile_path, cell.scenario.engine.sampling) for cell in cells)
    pairs = ((_profile(path), sampling) for path, sampling in stated if sampling is not None)
    return tuple(
        f"{profile.name} was measured with {profile.sampling} sampling and the scenario states {sampling}; "
        "acceptance and drafting take other times then"
        for profile, sampling in pairs
        if sampling != profile.sampling
    )


def _warnings(runs: dict[tuple[str, str, int], Finished]) -> tuple[str, ...]:
    """What a reader must know before trusting the numbers."""
    beyond = {key: run.extrapolated_share for key, run in runs.items() if run.extrapolated_share > 0}
    if not beyond:
        return ()
    (cell, policy, _), share = max(beyond.items(), key=lambda item: item[1])
    return (
        f"steps beyond what the profile measured were extrapolated in {len(beyond)} of {len(runs)} runs "
        f"(most: {share:.1%} of the steps of {policy} at {cell})",
    )
