"""A scenario's simulation of measured runs: one call for each run and adjustment, remembered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from sim.acceptance.build import build_process
from sim.against.adjust import UNCHANGED, Adjustment, shifted
from sim.against.measured import ACCEPTED, Run
from sim.against.observed import Observed, observe
from sim.against.workload import requests_of, stand_in
from sim.engine.simulate import Setup, simulate
from sim.errors import InputError
from sim.policies.config import Bounds, PolicyConfig
from sim.policies.custom import CustomConfig
from sim.scenario.load import load_scenario
from sim.scenario.model import Scenario, speculates
from sim.sweep.prepare import NO_DRAFTS, prepare


@dataclass(frozen=True)
class Simulated:
    """Metrics of one measured run, simulated: means over seeds and standard deviations between them."""

    mean: Mapping[str, float]
    deviation: Mapping[str, float]


@dataclass
class Bench:
    """Measured runs and what simulates them.

    ``own_workload`` sends the scenario's requests instead of the files'.
    """

    scenario: Scenario
    runs: tuple[Run, ...]
    policies: tuple[PolicyConfig, ...]
    seeds: tuple[int, ...] = (0, 1, 2)
    own_workload: bool = False
    _known: dict[tuple[int, Adjustment], Simulated] = field(default_factory=dict)
    _sketched: dict[tuple[int, Adjustment], Mapping[str, float]] = field(default_factory=dict)

    def simulated(self, number: int, adjustment: Adjustment = UNCHANGED) -> Simulated:
        """Run ``number`` under an adjustment, over all seeds."""
        if (number, adjustment) not in self._known:
            found = [self._once(number, adjustment, seed) for seed in self._seeds_of(number)]
            self._known[number, adjustment] = _over_seeds(found)
        return self._known[number, adjustment]

    def sketched(self, number: int, adjustment: Adjustment) -> Simulated:
        """The same, nearly, from the first seed alone: what it changes there is taken for all seeds.

        Seeds share nothing but the change, so the ratio to the first seed's own run is far less noisy
        than the run itself.
        """
        whole = self.simulated(number)
        if adjustment == UNCHANGED or len(self._seeds_of(number)) == 1:
            return self.simulated(number, adjustment)
        base, new = (self._first(number, each) for each in (UNCHANGED, adjustment))
        mean = {name: whole.mean[name] * new[name] / base[name] for name in whole.mean if new.get(name)}
        return Simulated(mean, whole.deviation)

    def drafts(self, number: int) -> bool:
        """Whether run ``number`` speculates."""
        return speculates(self.policies[number])

    @property
    def stated_error(self) -> float | None:
        """How far the profile says that its step times may be off."""
        error = self._prepared(0, 0.0, self.seeds[0]).profile.error
        return error.relative if error else None

    def _first(self, number: int, adjustment: Adjustment) -> Mapping[str, float]:
        if (number, adjustment) not in self._sketched:
            self._sketched[number, adjustment] = self._once(number, adjustment, self.seeds[0]).metrics
        return self._sketched[number, adjustment]

    def _seeds_of(self, number: int) -> tuple[int, ...]:
        """One seed where nothing is drawn: no drafts, and a closed loop or recorded times of sending."""
        run = self.runs[number]
        drawn = self.drafts(number) or self.own_workload or (run.load.rate_per_s and not run.sent_s)
        return self.seeds if drawn else self.seeds[:1]

    def _once(self, number: int, adjustment: Adjustment, seed: int) -> Observed:
        prepared = self._prepared(number, adjustment.acceptance, seed)
        requests = self._requests(number, seed)
        setup = adjustment.applied(replace(prepared, requests=requests, keep_steps=False))
        policy = _own(self.policies[number], self.scenario.folder)
        return observe(simulate(setup, policy.build(Bounds(setup.max_depth))))

    def _prepared(self, number: int, shift: float, seed: int) -> Setup:
        setup = prepare(self.scenario, self.policies[number], seed)
        return setup if shift == 0 else replace(setup, processes=self._processes(setup, shift, seed))

    def _processes(self, setup: Setup, shift: float, seed: int) -> Any:
        scenario = self.scenario
        moved = [shifted(config, shift) if config else NO_DRAFTS for config in scenario.acceptances]
        depth = max(setup.max_depth, 1)
        return tuple(build_process(config, seed, depth, scenario.locate_acceptance) for config in moved)

    def _requests(self, number: int, seed: int) -> Any:
        if self.own_workload:
            return prepare(self.scenario, self.policies[number], seed).requests
        return requests_of(self.runs[number], seed)


def _own(policy: PolicyConfig, folder: Path) -> PolicyConfig:
    """A user's own policy, found from the scenario's folder."""
    if isinstance(policy, CustomConfig):
        return policy.model_copy(update={"search": str(folder / policy.search)})
    return policy


def _over_seeds(found: Sequence[Observed]) -> Simulated:
    """Means; a deviation is that between seeds, or between requests where it is known and larger."""
    names = [name for name in found[0].metrics if all(name in each.metrics for each in found)]
    values = {name: np.array([each.metrics[name] for each in found]) for name in names}
    deviation = {name: float(each.std(ddof=1)) if len(each) > 1 else 0.0 for name, each in values.items()}
    mean = {name: float(each.mean()) for name, each in values.items()}
    luck = float(np.mean([each.luck for each in found]))
    for name in ACCEPTED:
        if name in mean:
            deviation[name] = max(deviation[name], luck * mean[name])
    return Simulated(mean, deviation)


# -- making one ------------------------------------------------------------------------------------


def make_bench(
    path: Path,
    runs: Sequence[Run],
    settings: Mapping[str, Any],
    policy: str | None = None,
    seeds: int = 3,
    own_workload: bool = False,
) -> Bench:
    """The bench of a scenario file; ``settings`` are plain values at dotted paths of the file.

    ``policy`` labels the policy of every run; else a run's depth chooses it. Raises ``InputError``
    where no policy fits a run, and as ``load_scenario``.
    """
    workload = {} if own_workload else {"workload": stand_in(runs[0])}
    scenario = load_scenario(path, {"sweep": {}, **workload, **settings})
    policies = tuple(policy_of(scenario, run, policy) for run in runs)
    return Bench(scenario, tuple(runs), policies, tuple(range(seeds)), own_workload)


def policy_of(scenario: Scenario, run: Run, label: str | None) -> PolicyConfig:
    """The policy that a run was measured under."""
    if label is not None:
        return _labelled(scenario, label)
    if run.depth is not None:
        fits = [policy for policy in scenario.policies if _has_depth(policy, run.depth)]
        if fits:
            return fits[0]
    only = scenario.policies[0] if len(scenario.policies) == 1 else None
    if only is not None and (run.depth is None or (run.depth > 0 and speculates(only))):
        return only
    known = ", ".join(scenario.labels)
    says = "does not say its depth" if run.depth is None else f"was measured at depth {run.depth}"
    raise InputError(
        f"{run.place}: {says}; name the policy with --policy, or give the scenario one ({known})"
    )


def _labelled(scenario: Scenario, label: str) -> PolicyConfig:
    found = [policy for policy in scenario.policies if policy.title == label]
    if not found:
        raise InputError(f"--policy: none is called {label!r}; take one of {', '.join(scenario.labels)}")
    return found[0]


def _has_depth(policy: PolicyConfig, depth: int) -> bool:
    if depth == 0:
        return policy.policy == "off"
    return policy.policy == "static" and policy.depth == depth
