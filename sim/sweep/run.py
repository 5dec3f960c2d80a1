"""A scenario in, a comparison out: every cell of the sweep under every policy and every seed.

Each (cell, policy, seed) is one independent run; the same run gives the same numbers whichever
process makes it, so results do not depend on the workers, on shards, or on what was there before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sim.ahead.choose import expect
from sim.errors import InputError
from sim.policies.config import PolicyConfig
from sim.results import compare
from sim.results.metrics import Metrics, measure
from sim.results.window import longest_cut
from sim.scenario.load import expand
from sim.scenario.model import Cell, Scenario
from sim.sweep.execute import Executor, Kind, executor
from sim.sweep.folder import Facts, Folder, Measure, RunFolder
from sim.sweep.identity import settings_of
from sim.sweep.results import (
    Finished,
    Results,
    RunKey,
    compared,
    error_of,
    profiles_of,
    provenance,
    warnings_of,
)
from sim.sweep.stopping import MIN_SEEDS, is_tight
from sim.sweep.task import Made, Task, read_or_make

Group = tuple[Cell, int]
"""A cell and a seed: the runs that are measured together."""


@dataclass(frozen=True)
class Watch:
    """What is told of a sweep while it runs.

    ``progress`` is called with (finished, total) runs, ``on_cell`` with the comparison of each
    cell as soon as its runs are there.
    """

    progress: Callable[[int, int], None] = lambda done, total: None
    on_cell: Callable[[compare.Comparison], None] = lambda comparison: None


def run_scenario(
    scenario: Scenario,
    jobs: int = 1,
    out: Path | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
    on_cell: Callable[[compare.Comparison], None] = lambda comparison: None,
    workers: Kind = "local",
) -> Results:
    """Run every cell, policy and seed; with ``out``, only what is not in that results folder yet.

    ``jobs`` is the number of worker processes; ``workers`` says where they are. Raises
    ``InputError`` or ``ProfileError`` when a run cannot be set up.
    """
    cells = expand(scenario)
    with executor(workers, min(jobs, _runs(scenario, cells))) as run_all:
        sweep = Sweep(scenario, cells, out, run_all, Watch(progress, on_cell))
        return sweep.results()


@dataclass(frozen=True)
class Shard:
    """What one of several processes made of a sweep: new runs, and those there before."""

    made: int
    present: int


def run_shard(
    scenario: Scenario,
    part: int,
    parts: int,
    out: Path,
    jobs: int = 1,
    progress: Callable[[int, int], None] = lambda done, total: None,
    workers: Kind = "local",
) -> Shard:
    """Make the ``part``-th (from 1) of ``parts`` shares of a sweep's runs, into its results folder.

    Every n-th run is a share; with ``run.precision`` every n-th cell is, since each run there
    depends on those before it. ``run_scenario`` on the same folder then finds them.
    """
    if not 1 <= part <= parts:
        raise InputError(f"--shard {part}/{parts}: the first number goes from 1 to the second")
    cells = expand(scenario)
    precise = scenario.run.precision is not None
    mine = cells[part - 1 :: parts] if precise else cells
    with executor(workers, jobs) as run_all:
        sweep = Sweep(scenario, mine, out, run_all, Watch(progress))
        if precise:
            sweep.run()
        else:
            deque(sweep.make(sweep.all_tasks()[part - 1 :: parts]), maxlen=0)
    return Shard(sweep.made, sweep.done - sweep.made)


class Sweep:
    """One sweep while it runs: what is finished, and what is to be made next."""

    def __init__(
        self, scenario: Scenario, cells: Sequence[Cell], out: Path | None, run_all: Executor, watch: Watch
    ) -> None:
        self.scenario, self.cells = scenario, tuple(cells)
        self.runs: dict[RunKey, Finished] = {}
        self.made = self.done = 0
        self._settings: dict[str, dict[str, Any]] = {}
        self._compared: dict[str, compare.Cell] = {}
        self._profiles = profiles_of(self.cells)
        self._folder = None if out is None else Folder(out)
        self._run_all, self._watch = run_all, watch
        self._total = _runs(scenario, cells)
        if self._folder is not None:
            self._folder.prepare()

    def results(self) -> Results:
        """Run what is missing, and compare."""
        self.run()
        cells = [self._compared[cell.label] for cell in self.cells]
        order = [key for cell in self.cells for key in self.runs if key[0] == cell.label]
        return Results(
            scenario=self.scenario,
            cells=self.cells,
            comparison=self._comparison(cells),
            runs={key: self.runs[key] for key in order},
            profiles=self._profiles,
            about=provenance(self.scenario, self.cells, self._profiles),
            warnings=warnings_of(self.cells, self._profiles, self.runs),
            made=self.made,
            folders={
                task.key: task.folder
                for task in self.all_tasks()
                if task.key in self.runs and task.folder is not None
            },
        )

    def run(self) -> None:
        """All seeds of all cells; with a precision the first few, then one more where it takes more."""
        seeds = self.scenario.run.seeds
        first = len(seeds) if self.scenario.run.precision is None else min(MIN_SEEDS, len(seeds))
        groups = [(cell, seed) for cell in self.cells for seed in seeds[:first]]
        while groups:
            groups = self._round(groups)

    def make(self, tasks: Sequence[Task]) -> Iterator[Made | Facts]:
        """Every task's run in order: made now, or the facts of one that is there already."""
        missing = deque(_missing(tasks))
        expect(len(missing))
        made = self._run_all(tuple(missing))
        self._advance(len(tasks) - len(missing))
        for task in tasks:
            if missing and missing[0] is task:
                missing.popleft()
                run = next(made)
                self.made += 1
                self._advance(1)
                yield run
            else:
                yield (task.folder and task.folder.facts()) or read_or_make(task)

    def tasks(self, group: Group) -> list[Task]:
        """The runs of one cell and seed, in the order of the policies."""
        cell, seed = group
        return [
            Task(cell, policy, seed, self._place(cell, policy, seed)) for policy in cell.scenario.policies
        ]

    def _place(self, cell: Cell, policy: PolicyConfig, seed: int) -> RunFolder | None:
        """Where a run is kept, if anywhere."""
        if self._folder is None:
            return None
        if cell.label not in self._settings:
            self._settings[cell.label] = settings_of(cell.scenario)
        return self._folder.run(self._settings[cell.label], cell.scenario, policy, seed)

    def all_tasks(self) -> list[Task]:
        """Every run of the scenario, cell by cell and seed by seed."""
        seeds = self.scenario.run.seeds
        return [task for cell in self.cells for seed in seeds for task in self.tasks((cell, seed))]

    def _round(self, groups: list[Group]) -> list[Group]:
        """Finish these groups, whole cells one after another; returns those that have to follow."""
        tasks = [self.tasks(group) for group in groups]
        made = self.make([task for each in tasks for task in each])
        following = []
        for i, (group, mine) in enumerate(zip(groups, tasks, strict=True)):
            self.runs |= measured(mine, [next(made) for _ in mine])
            cell = group[0]
            if i + 1 == len(groups) or groups[i + 1][0] is not cell:
                following += self._settle(cell)
        return following

    def _settle(self, cell: Cell) -> list[Group]:
        """Compare a cell; its next seed, if it takes one more."""
        seeds = self.scenario.run.seeds
        count = sum(label == cell.label for label, _, _ in self.runs) // len(cell.scenario.policies)
        found = compared(cell, self.runs, seeds[:count])
        if count < len(seeds) and not self._is_tight(found):
            return [(cell, seeds[count])]
        self._total -= (len(seeds) - count) * len(cell.scenario.policies)
        self._advance(0)
        self._compared[cell.label] = found
        self._watch.on_cell(self._comparison([found]))
        return []

    def _is_tight(self, cell: compare.Cell) -> bool:
        run, error = self.scenario.run, error_of(self._profiles)
        return is_tight(cell, self.scenario.baseline, run.metric_name, error, run.precision or 0.0)

    def _comparison(self, cells: Sequence[compare.Cell]) -> compare.Comparison:
        run = self.scenario.run
        return compare.Comparison(
            tuple(cells), self.scenario.baseline, run.metric_name, error_of(self._profiles)
        )

    def _advance(self, runs: int) -> None:
        self.done += runs
        self._watch.progress(self.done, self._total)


def measured(tasks: Sequence[Task], runs: Sequence[Made | Facts]) -> dict[RunKey, Finished]:
    """Measure the runs of all policies of one cell and seed, with one warm-up cut for all of them."""
    scenario = tasks[0].cell.scenario
    facts = [run.facts if isinstance(run, Made) else run for run in runs]
    how = measure_for(scenario, facts)
    return {
        task.key: Finished(_metrics(task, run, how), known.breakdown_ns, known.extrapolated_share)
        for task, run, known in zip(tasks, runs, facts, strict=True)
    }


def measure_for(scenario: Scenario, facts: Sequence[Facts]) -> Measure:
    """How the runs of one cell and seed are measured: the same requests of each are cut as warm-up."""
    warmup = longest_cut([each.cut for each in facts], scenario.run.warmup)
    return Measure(warmup, scenario.slos)


def _metrics(task: Task, run: Made | Facts, how: Measure) -> Metrics:
    """A run's metrics, from its folder where they are there; they stay there if it has one."""
    folder = task.folder
    found = folder.metrics(how) if folder is not None else None
    if found is None:
        made = run if isinstance(run, Made) else read_or_make(task)
        found = measure(made.records, how.warmup, how.slos, made.flops, made.bytes)
        if folder is not None:
            folder.keep_metrics(how, found)
    if folder is not None and not task.keeps_records:
        folder.drop_records()
    return found


def _missing(tasks: Sequence[Task]) -> list[Task]:
    """Tasks that have to be made, each run once: two cells or labels may ask for the same one."""
    asked: set[Path] = set()
    missing = []
    for task in tasks:
        if task.folder is None:
            missing.append(task)
        elif task.folder.path not in asked and not task.is_there:
            asked.add(task.folder.path)
            missing.append(task)
    return missing


def _runs(scenario: Scenario, cells: Sequence[Cell]) -> int:
    return len(cells) * len(scenario.policies) * len(scenario.run.seeds)
