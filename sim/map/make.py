"""Building a map: a coarse grid of short runs, then more of them where the winner changes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sim import __version__
from sim.cost.step_cost import StepCost
from sim.errors import InputError
from sim.map.axes import Traffic, Wanted, axes_of
from sim.map.curve import step_curve
from sim.map.grid import coarse_boxes, coarse_points, refined
from sim.map.judge import Judge
from sim.map.model import At, Axis, Map, Point
from sim.map.place import Place
from sim.map.runs import Group, RunGroups, workers
from sim.policies.config import PolicyConfig
from sim.policies.off import OffConfig
from sim.policies.static import StaticConfig
from sim.results.metrics import Metrics
from sim.scenario.estimate import running
from sim.scenario.model import Scenario
from sim.sweep.prepare import costs, profile_at

STEPS: Final = 800
"""About how many steps a plain run takes; runs with drafts take fewer."""
MIN_REQUESTS: Final = 16
TURNOVERS: Final = 3  # requests per running sequence, so that a batch is renewed after its warm-up
DEFAULT_REFINE: Final = 24
MOST_POINTS: Final = 2000
_DEPTHS: Final = (0, 1, 2, 3, 5, 7, 10, 15)
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Plan:
    """What is simulated at every point: the scenario's policies, and fixed depths beside them."""

    policies: tuple[PolicyConfig, ...]
    depths: dict[int, str]
    baseline: str


def build(
    scenario: Scenario,
    wanted: Sequence[Wanted],
    refine: int = DEFAULT_REFINE,
    jobs: int = 1,
    progress: Progress = lambda done, total: None,
    steps: int = STEPS,
) -> Map:
    """Simulate the map of a scenario; its ``sweep`` is not looked at.

    ``refine`` points are added where corners disagree. A plain run takes about ``steps``
    steps. The result does not depend on ``jobs``.
    ``progress`` is called with (points done, points wanted at most). Raises ``InputError`` where an
    axis does not fit the scenario, or the scenario is of several replicas.
    """
    if scenario.fleet.count > 1 or not scenario.fleet.plain:
        raise InputError(
            f"fleet: {scenario.fleet.count} replicas, and a map is of one replica; remove fleet from the "
            "scenario, and state loads as one replica's share"
        )
    plan = plan_of(scenario)
    traffic = Traffic(scenario, scenario.run.seeds[0])
    axes = axes_of(traffic, wanted)
    coarse = coarse_points(axes)
    if len(coarse) + refine > MOST_POINTS:
        raise InputError(f"{len(coarse)} + {refine} points; a map has at most {MOST_POINTS}")
    error = profile_at(scenario.profile_path).error
    judge = Judge(
        scenario.run.metric_name,
        error.relative if error else 0.0,
        plan.baseline,
        tuple(policy.title for policy in plan.policies),
        plan.depths,
    )
    with workers(scenario, plan.policies, jobs) as run_groups:
        survey = Survey(
            scenario,
            axes,
            traffic,
            judge,
            run_groups,
            lambda done: progress(done, len(coarse) + refine),
            steps,
        )
        points = {point.at: point for point in survey.points(coarse)}
        boxes, points = refined(axes, coarse_boxes(axes), points, refine, plan.baseline, survey.points)
    number = {at: i for i, at in enumerate(points)}
    return Map(
        about=_about(scenario),
        metric=judge.metric,
        error=judge.error,
        baseline=plan.baseline,
        axes=axes,
        policies=judge.labels,
        depths=plan.depths,
        points=tuple(points.values()),
        cells=tuple(tuple(number[at] for at in box.corners) for box in boxes),
        curve=step_curve(scenario, _most_tokens(points.values())),
    )


def plan_of(scenario: Scenario) -> Plan:
    """The scenario's policies without its bounds, ``off``, and every fixed depth that is not there yet.

    Depth 0 is ``off``, which runs no drafter at all. Deep drafters are tried at fewer depths.
    """
    kept = [policy for policy in scenario.policies if policy.policy != "oracle"]
    off = next((policy for policy in kept if policy.policy == "off"), OffConfig(policy="off"))
    policies: list[PolicyConfig] = [off, *(policy for policy in kept if policy is not off)]
    _, drafter = costs(scenario, kept[-1] if kept else off)
    deepest = scenario.max_depth(drafter)
    fixed = {policy.depth: policy for policy in kept if isinstance(policy, StaticConfig) and policy.k}
    wanted = sorted({*(depth for depth in _DEPTHS if depth <= deepest), deepest, *fixed})
    depths = {0: off.title}
    for depth in wanted[1:]:
        policy = fixed.get(depth) or StaticConfig(policy="static", k=depth)
        policies += [] if depth in fixed else [policy]
        depths[depth] = policy.title
    baseline = scenario.baseline if scenario.baseline in {policy.title for policy in policies} else off.title
    return Plan(tuple(policies), depths, baseline)


@dataclass
class Survey:
    """Simulates points: turns coordinates into places, places into runs, runs into figures."""

    scenario: Scenario
    axes: tuple[Axis, ...]
    traffic: Traffic
    judge: Judge
    run_groups: RunGroups
    progress: Callable[[int], None]
    steps: int = STEPS
    done: int = 0

    def points(self, ats: Sequence[At]) -> Iterator[Point]:
        """The points at these coordinates, those with equal load and lengths together."""
        places, seeds = {at: self.place(at) for at in ats}, self.scenario.run.seeds
        columns: dict[Place, list[At]] = {}
        for at, place in places.items():
            columns.setdefault(place.plain, []).append(at)
        groups = [
            Group(tuple(places[at] for at in column), seed) for column in columns.values() for seed in seeds
        ]
        found = iter(self.run_groups(groups))
        for column in columns.values():
            by_seed = [next(found) for _ in seeds]
            for at, runs in zip(column, zip(*by_seed, strict=True), strict=True):
                yield self._point(at, places[at], runs)
            self.done += len(column)
            self.progress(self.done)

    def place(self, at: At) -> Place:
        """What a point's coordinates mean for this scenario."""
        value = dict(zip((axis.name for axis in self.axes), at, strict=True))
        unit = {axis.name: axis.unit for axis in self.axes}.get("load")
        prompts = value["context"] / self.traffic.load.prompt_tokens if "context" in value else 1.0
        outputs = value["output"] / self.traffic.load.output_tokens if "output" in value else 1.0
        rate = value.get("load") if unit in ("/s", "share") else None
        if unit == "share" and rate is not None:
            rate *= self.traffic.capacity_per_s(prompts, outputs)
        in_flight = int(value["load"]) if unit == "in flight" else None
        place = Place(0, rate, in_flight, value.get("acceptance"), prompts, outputs)
        return Place(self._requests(place), rate, in_flight, place.acceptance, prompts, outputs)

    def _requests(self, place: Place) -> int:
        """Enough requests for a plain run of ``steps`` steps, and for its batch to be renewed."""
        breadth = place.in_flight or self._running(place)
        output = max(1.0, self.traffic.load.output_tokens * place.outputs)
        return max(MIN_REQUESTS, math.ceil(self.steps * breadth / output), TURNOVERS * breadth)

    def _running(self, place: Place) -> int:
        """Sequences that run at once without drafts, by Little's law."""
        load, engine = self.traffic.load, self.scenario.engine
        if self.traffic.closed:
            return self.scenario.workload.arrival.max_concurrency or 1
        here = type(load)(
            load.requests,
            load.rate_per_s if place.rate_per_s is None else place.rate_per_s,
            load.prompt_tokens * place.prompts,
            load.output_tokens * place.outputs,
        )
        profile = profile_at(self.scenario.profile_path)
        cost = StepCost(profile, None, max(engine.max_num_batched_tokens, engine.max_num_seqs))
        return running(here, cost, 0, 1.0, engine.max_num_seqs)

    def _point(self, at: At, place: Place, runs: Sequence[Sequence[Metrics]]) -> Point:
        load = self.traffic.load
        context = load.prompt_tokens * place.prompts + load.output_tokens * place.outputs / 2
        rate = place.rate_per_s if place.rate_per_s is not None else load.rate_per_s
        return self.judge.point(at, runs, math.nan if self.traffic.closed else rate, context)


def _most_tokens(points: Iterable[Point]) -> int:
    """The largest step that the explorer draws: the widest batch at its depth, and some room."""
    widest = (f.breadth * (1 + f.depth) for p in points for f in p.policies.values() if not f.unstable)
    return max(64, math.ceil(1.3 * max((tokens for tokens in widest if math.isfinite(tokens)), default=64)))


def _about(scenario: Scenario) -> dict[str, Any]:
    profile = profile_at(scenario.profile_path)
    return {
        "scenario": scenario.name,
        "leadline": __version__,
        "profile": profile.name,
        "profile_kind": profile.kind,
        "drafter": scenario.drafter,
        "engine": scenario.engine.preset,
        "acceptance": [config.process if config else "none" for config in scenario.acceptances],
        "seeds": list(scenario.run.seeds),
    }
