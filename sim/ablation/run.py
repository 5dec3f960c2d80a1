"""The runs of an ablation: one engine and its variants, under the same requests and the same luck."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import count, product

from sim.ablation.shares import Ablation, PolicyAblation
from sim.ablation.variants import Change, Variant, changes, variants
from sim.engine.presets import PresetName
from sim.policies.config import PolicyConfig
from sim.results.metrics import Metrics, measure
from sim.results.window import longest_cut
from sim.scenario.load import expand
from sim.scenario.model import Cell, Scenario
from sim.sweep.execute import Executor, Kind, executor
from sim.sweep.results import error_of, profiles_of
from sim.sweep.task import Made, Task


def ablate_scenario(
    scenario: Scenario,
    against: PresetName = "ideal",
    switches: Sequence[str] | None = None,
    jobs: int = 1,
    progress: Callable[[int, int], None] = lambda done, total: None,
    workers: Kind = "local",
) -> Ablation:
    """Run every load, policy and seed as it stands and with each mechanism as in ``against``.

    All variants of one policy and seed are measured after the same warm-up. Every seed of the scenario
    is run, whatever ``run.precision`` says. Raises ``InputError`` for an unknown switch.
    """
    plans = [_Plan(cell, changes(cell.scenario.engine, against, switches)) for cell in expand(scenario)]
    total = sum(plan.count for plan in plans)
    done = count(1)
    progress(0, total)
    error = error_of(profiles_of([plan.cell for plan in plans]))

    def tell() -> None:
        progress(next(done), total)

    with executor(workers, min(jobs, total)) as run_all:
        entries = [entry for plan in plans for entry in plan.entries(run_all, error, tell)]
    return Ablation(
        scenario=scenario.name,
        against=against,
        seeds=tuple(scenario.run.seeds),
        error=error,
        entries=tuple(entries),
    )


class _Plan:
    """One cell of the scenario, and what is run of it."""

    def __init__(self, cell: Cell, changed: tuple[Change, ...]) -> None:
        self.cell, self.changed = cell, changed
        self.variants = variants(cell.scenario.engine, changed)
        self.policies, self.seeds = cell.scenario.policies, cell.scenario.run.seeds

    @property
    def count(self) -> int:
        """Runs of the cell."""
        return len(self.variants) * len(self.policies) * len(self.seeds)

    def entries(self, run_all: Executor, error: float, tell: Callable[[], None]) -> Iterator[PolicyAblation]:
        """Every policy with its runs, as soon as they are made; ``tell`` is called after each run."""
        tasks = [self._task(*each) for each in product(self.policies, self.seeds, self.variants)]
        made = _telling(run_all(tasks), tell)
        for policy in self.policies:
            by_seed = [self._measured([next(made) for _ in self.variants]) for _ in self.seeds]
            runs = dict(zip((v.switch for v in self.variants), zip(*by_seed, strict=True), strict=True))
            preset = self.cell.scenario.engine.preset
            yield PolicyAblation(self.cell.label, policy.title, preset, self.changed, runs, error)

    def _task(self, policy: PolicyConfig, seed: int, variant: Variant) -> Task:
        scenario = self.cell.scenario.model_copy(update={"engine": variant.engine})
        return Task(
            replace(self.cell, label=f"{self.cell.label}, {variant.switch}", scenario=scenario), policy, seed
        )

    def _measured(self, made: Sequence[Made]) -> list[Metrics]:
        """Metrics of all variants of one policy and seed, with one warm-up cut for all of them."""
        scenario = self.cell.scenario
        warmup = longest_cut([each.facts.cut for each in made], scenario.run.warmup)
        return [measure(each.records, warmup, scenario.slos, each.flops, each.bytes) for each in made]


def _telling(made: Iterator[Made], tell: Callable[[], None]) -> Iterator[Made]:
    for each in made:
        tell()
        yield each
