"""From a scenario with a fleet to what each of its replicas runs on, and whose steps are whose."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from calibrate.profile import Drafter, Profile
from sim.engine.simulate import Setup
from sim.fleet.config import Group
from sim.fleet.live import Post
from sim.policies.base import Policy
from sim.policies.config import PolicyConfig
from sim.policies.static import Static
from sim.results.run_records import Columns, RunRecords
from sim.scenario.model import Scenario, speculates
from sim.sweep.prepare import costs_of, fresh, processes_of


@dataclass(frozen=True)
class Part:
    """The steps of one group of replicas (``None``: all steps), and what they cost by."""

    rows: NDArray[np.bool_] | None
    profile: Profile
    drafter: Drafter | None
    named: str | None

    def of(self, steps: Columns) -> Columns:
        """The columns of these steps alone."""
        return steps if self.rows is None else {name: values[self.rows] for name, values in steps.items()}


def parts_of(scenario: Scenario, policy: PolicyConfig, records: RunRecords) -> Iterator[Part]:
    """Every group's steps; a fleet of equal replicas is one part."""
    for number, group in enumerate(scenario.fleet.groups):
        own = group.policy or policy
        profile, drafter = costs_of(scenario, own, group)
        named = (group.drafter or scenario.drafter) if drafter else None
        if records.fleet is None or len(scenario.fleet.groups) == 1:
            yield Part(None, profile, drafter, named)
            return
        rows = records.fleet.group[records.steps["replica"]] == number
        yield Part(rows, profile, drafter, named)


def posts_of(scenario: Scenario, policy: PolicyConfig, setup: Setup) -> list[Post]:
    """What every replica of the fleet runs on, group by group; ``setup`` is the scenario's own."""
    found = []
    for number, (group, size) in enumerate(zip(scenario.fleet.groups, scenario.fleet.sizes, strict=True)):
        own = group.policy or policy
        mine = _setup(scenario, own, group, setup)
        build: Callable[[], Policy] = partial(fresh, scenario, own, mine)
        if group.role == "prefill" and speculates(own):
            mine, build = prefilling(mine)
        found += [Post(mine, build, number, i < group.count) for i in range(size)]
    return found


def prefilling(setup: Setup) -> tuple[Setup, Callable[[], Policy]]:
    """A prefill replica with a drafter runs its first pass over prompts, so that decode finds its KV.

    It drafts nothing, since every request leaves after one token.
    """
    engine = setup.engine.model_copy(update={"draft_at_depth_zero": True})
    return replace(setup, engine=engine, max_depth=1), lambda: Static(0)


def _setup(scenario: Scenario, policy: PolicyConfig, group: Group, setup: Setup) -> Setup:
    """The scenario's setup with what differs in a group; the requests stay the same object."""
    profile, drafter = costs_of(scenario, policy, group)
    depth = scenario.max_depth(drafter, policy)
    levels = policy.depth if policy.verified > policy.depth else depth
    engine = setup.engine
    if group.engine is not None:
        own = {name: getattr(group.engine, name) for name in group.engine.model_fields_set}
        engine = engine.model_copy(update=own)
    return replace(
        setup,
        profile=profile,
        drafter=drafter,
        engine=engine,
        max_depth=depth,
        processes=processes_of(scenario, setup.seed, levels, group.acceptance),
    )
