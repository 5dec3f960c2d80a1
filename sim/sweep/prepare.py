"""From a scenario, a policy and a seed to everything that one run needs, and to its records."""

from __future__ import annotations

import traceback
from functools import lru_cache
from pathlib import Path
from typing import cast

from calibrate.profile import Drafter, Profile, load_profile
from sim.acceptance.base import AcceptanceProcess
from sim.acceptance.build import build_process
from sim.acceptance.config import AcceptanceConfig, IidAcceptance
from sim.engine.simulate import Setup
from sim.errors import InputError, LeadlineError
from sim.fleet.config import Group, RouterName
from sim.fleet.fleet import Member, simulate_fleet
from sim.fleet.live import simulate_live
from sim.policies.base import Policy
from sim.policies.config import Bounds, PolicyConfig
from sim.policies.custom import CustomConfig
from sim.results.run_records import RunRecords
from sim.scenario.model import Scenario, speculates
from sim.workload.build import build_requests

NO_DRAFTS = IidAcceptance(process="iid", alpha=0.0)
"""Stands in for the acceptance of a scenario that never drafts."""


def make_run(scenario: Scenario, policy: PolicyConfig, seed: int) -> tuple[RunRecords, Setup]:
    """Simulate one policy under one seed; returns the records and what they were made from."""
    setup = prepare(scenario, policy, seed)
    return run_setup(scenario, policy, setup), setup


def run_setup(scenario: Scenario, policy: PolicyConfig, setup: Setup) -> RunRecords:
    """Simulate one policy on what was prepared; raises ``InputError`` where a user's own class fails."""
    if not isinstance(policy, CustomConfig):
        return _simulated(scenario, policy, setup)
    try:
        return _simulated(scenario, policy, setup)
    except LeadlineError as error:
        raise InputError(f"policy {policy.title}: {error}") from error
    except Exception as error:
        at = traceback.extract_tb((error.__cause__ or error).__traceback__)[-1]  # SimPy raises a copy
        what = f"{type(error).__name__}: {error}"
        raise InputError(f"policy {policy.title}: {what} ({Path(at.filename).name}:{at.lineno})") from error


def _simulated(scenario: Scenario, policy: PolicyConfig, setup: Setup) -> RunRecords:
    """The run, on equal replicas or on a fleet whose replicas differ, come and go, or fail."""
    from sim.sweep.posts import posts_of  # needs what stands here

    fleet = scenario.fleet
    if fleet.plain:
        members = [Member(setup, fresh(scenario, policy, setup)) for _ in range(fleet.count)]
        return simulate_fleet(members, cast(RouterName, fleet.router))
    return simulate_live(posts_of(scenario, policy, setup), fleet)


def fresh(scenario: Scenario, policy: PolicyConfig, setup: Setup) -> Policy:
    """A policy for one replica of one run; a user's own class is looked for from the scenario's folder."""
    if isinstance(policy, CustomConfig):
        policy = policy.model_copy(update={"search": str(scenario.folder / policy.search)})
    return policy.build(Bounds(setup.max_depth))


def prepare(scenario: Scenario, policy: PolicyConfig, seed: int) -> Setup:
    """Everything one run needs; raises what is wrong with any file that the scenario names."""
    profile, drafter = costs(scenario, policy)
    depth = scenario.max_depth(drafter, policy)
    levels = policy.depth if policy.verified > policy.depth else depth
    return Setup(
        requests=build_requests(scenario.workload, seed, scenario.locate),
        profile=profile,
        drafter=drafter,
        engine=scenario.engine.beside(drafter),
        processes=processes_of(scenario, seed, levels),
        max_depth=depth,
        seed=seed,
        tpot_limits_ns=scenario.tpot_limits_ns,
        structured=tuple(kind.structured for kind in scenario.workload.classes),
    )


def costs(scenario: Scenario, policy: PolicyConfig) -> tuple[Profile, Drafter | None]:
    """The profile that a run's steps are timed by, and the drafter if the policy drafts."""
    return costs_of(scenario, policy, Group())


def costs_of(scenario: Scenario, policy: PolicyConfig, group: Group) -> tuple[Profile, Drafter | None]:
    """The same for the replicas of one group, whose profile and drafter may be their own."""
    path = scenario.profile_path if group.profile is None else scenario.locate_profile(group.profile)
    profile = profile_at(path).in_mode(scenario.profile_mode)
    named = group.drafter or scenario.drafter
    return profile, profile.drafters[named] if speculates(policy) and named else None


def profile_at(path: Path) -> Profile:
    """The profile of a file, read once for as long as the file stays as it is."""
    return _profile(path, *stamp(path))


def stamp(path: Path) -> tuple[int, int]:
    """What tells that a file was changed: its time of change and its size."""
    found = path.stat()
    return found.st_mtime_ns, found.st_size


@lru_cache(maxsize=8)
def _profile(path: Path, changed_ns: int, size: int) -> Profile:
    return load_profile(path)


def processes_of(
    scenario: Scenario, seed: int, depth: int, acceptance: AcceptanceConfig | None = None
) -> tuple[AcceptanceProcess, ...]:
    """One acceptance process per request class; ``acceptance`` stands for that of every class."""
    return tuple(
        build_process(acceptance or config or NO_DRAFTS, seed, max(depth, 1), scenario.locate_acceptance)
        for config in scenario.acceptances
    )
