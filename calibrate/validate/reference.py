"""Calibrate, serve, simulate, compare: the referee that runs on this machine alone."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path

import simpy

from calibrate.campaign import time_cell
from calibrate.cells import Cell as TimedCell
from calibrate.journal import Journal
from calibrate.passes.bench import TransformerBench
from calibrate.profile import Profile
from calibrate.session import Options, Parts, build_parts, run_campaign, to_profile
from calibrate.timing.peers import ALONE
from calibrate.timing.samples import Limits
from calibrate.validate.compare import Served, Verdict
from calibrate.validate.measures import metrics_of, step_error
from calibrate.validate.overhead import Overhead, OwnRun, fit_overhead
from calibrate.validate.plan import Plan, Size, write_profile
from calibrate.validate.wiring import Models, serve
from sim.cost.step_cost import StepCost
from sim.engine.simulate import Setup, build_replica, simulate
from sim.policies.config import Bounds, PolicyConfig
from sim.results.run_records import RunRecords
from sim.scenario.model import Cell
from sim.sweep.prepare import prepare

Say = Callable[[str], None]
Pair = tuple[str, str]
"""A load and a policy, by their names."""
OWN_SEED = 1 << 20
"""Requests of the runs that passes and loop are measured on in the engine: none that is predicted."""


@dataclass(frozen=True)
class Finding:
    """A whole comparison: the verdict, and what a reader needs to weigh it.

    ``anchors_us`` are times of one calibrated round, right after calibration and after each turn of
    the engine: how far the machine itself moved.
    """

    verdict: Verdict
    profile: Profile
    overhead: Overhead
    anchors_us: tuple[float, ...]
    seed: int

    @property
    def drift(self) -> float:
        """Largest anchor over the first, or the first over the smallest, less 1."""
        first = self.anchors_us[0]
        return max(max(self.anchors_us) / first, first / min(self.anchors_us)) - 1


@dataclass(frozen=True)
class Referee:
    """One machine with its models, and the scenario that it serves."""

    options: Options
    parts: Parts
    plan: Plan
    size: Size
    seed: int
    say: Say
    limits: Limits = field(default_factory=Limits)

    @property
    def models(self) -> Models:
        """The models that were timed."""
        assert isinstance(self.parts.bench, TransformerBench)
        return Models(self.parts.bench, next(iter(self.options.drafters)))

    def run(self, profile: Profile) -> Finding:
        """Compare on a calibrated profile.

        Between the loads of every turn lie runs of the engine's own, so that calibration and what is
        predicted share their minutes; the fit to all of them is what is judged.
        """
        cells, own_cells = self.plan.cells_here(self.seed), self.plan.own_loads(self.size.own)
        self.say("engine: runs of its own")
        own = [run for cell in own_cells for run in self._own_runs(cell, 0)]
        anchors, served = [self._anchor()], defaultdict[Pair, list[RunRecords]](list)
        between = cycle(own_cells)
        for number in range(self.size.runs):
            self.say(f"engine: run {number + 1} of {self.size.runs}")
            for cell in cells:
                own += self._own_runs(next(between), 1 + number)
                for policy, records in self._serve(cell, fit_overhead(own)):
                    served[cell.label, policy].append(records)
                anchors.append(self._anchor())
        overhead = fit_overhead(own)
        compared = [
            self._compared(cell, policy, overhead, served[cell.label, policy.title])
            for cell in cells
            for policy in cell.scenario.policies
        ]
        return Finding(Verdict(tuple(compared)), profile, overhead, tuple(anchors), self.seed)

    def _serve(self, cell: Cell, overhead: Overhead) -> Iterator[tuple[str, RunRecords]]:
        """One load under every policy."""
        for policy in cell.scenario.policies:
            setup = overhead.applied(prepare(cell.scenario, policy, self.seed), policy.title)
            yield policy.title, serve(setup, policy, self.models)

    def _own_runs(self, cell: Cell, turn: int) -> Iterator[OwnRun]:
        """A load that is not predicted, under every policy."""
        for policy in cell.scenario.policies:
            setup = prepare(cell.scenario, policy, OWN_SEED + self.seed + turn)
            yield OwnRun(policy.title, serve(setup, policy, self.models), _cost(setup, policy))

    def _compared(
        self, cell: Cell, policy: PolicyConfig, overhead: Overhead, runs: list[RunRecords]
    ) -> Served:
        setup = overhead.applied(prepare(cell.scenario, policy, self.seed), policy.title)
        simulated = simulate(setup, policy.build(Bounds(setup.max_depth)))
        cost = _cost(setup, policy)
        return Served(
            load=cell.settings[0][1],
            policy=policy.title,
            simulated=metrics_of(simulated),
            runs=tuple(metrics_of(run) for run in runs),
            step_errors=tuple(step_error(run, cost) for run in runs),
        )

    def _anchor(self) -> float:
        """Microseconds of the largest anchor round of the calibration."""
        cell: TimedCell = self.options.grid.anchors[-1]
        samples = time_cell(self.parts.bench, self.parts.timers[cell.execution], ALONE, cell, self.limits)
        return next(each.median_us for timed, each in samples.items() if timed.pass_ == "round")


def _cost(setup: Setup, policy: PolicyConfig) -> StepCost:
    """The cost tables that a run is simulated with."""
    return build_replica(simpy.Environment(), setup, policy.build(Bounds(setup.max_depth))).cost


def calibrated(options: Options, parts: Parts, size: Size, folder: Path, say: Say) -> Profile:
    """A profile of this machine, by ``leadline calibrate``'s own campaign."""
    say(f"calibrating, at most {size.calibration_s:g} s")
    journal = Journal(folder / "cells.jsonl", options.about(parts.device.name, parts.machine))
    journal.open(False)
    # Where passes are timed by CPU time, other load may make a campaign longer, but not smaller.
    now = time.process_time if options.device == "cpu" else time.monotonic
    outcome = run_campaign(options, parts, journal, size.calibration_s, lambda step: None, now)
    say(f"calibrated: {len(outcome.finished)} cells ({outcome.stopped}), drift {outcome.drift:.1%}")
    return to_profile(options, parts, outcome)


def referee(
    options: Options, size: Size, plan_of: Callable[[Path], Plan], seed: int, folder: Path, say: Say
) -> Finding:
    """The whole comparison on this machine."""
    parts = build_parts(options)
    profile = calibrated(options, parts, size, folder, say)
    plan = plan_of(write_profile(profile, folder, "calibrated"))
    return Referee(options, parts, plan, size, seed, say).run(profile)
