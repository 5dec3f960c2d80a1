"""From a scenario, a policy and a seed to everything that one run needs, and to its records."""

from __future__ import annotations

import traceback
from functools import lru_cache
from pathlib import Path

from calibrate.profile import Drafter, Profile, load_profile
from sim.acceptance.base import AcceptanceProcess
from sim.acceptance.build import build_process
from sim.acceptance.config import IidAcceptance
from sim.engine.simulate import Setup
from sim.errors import InputError, LeadlineError
from sim.fleet.fleet import Member, simulate_fleet
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
    fleet = scenario.fleet
    members = [Member(setup, fresh(scenario, policy, setup)) for _ in range(fleet.replicas)]
    if not isinstance(policy, CustomConfig):
        return simulate_fleet(members, fleet.router)
    try:
        return simulate_fleet(members, fleet.router)
    except LeadlineError as error:
        raise InputError(f"policy {policy.title}: {error}") from error
    except Exception as error:
        at = traceback.extract_tb((error.__cause__ or error).__traceback__)[-1]  # SimPy raises a copy
        what = f"{type(error).__name__}: {error}"
        raise InputError(f"policy {policy.title}: {what} ({Path(at.filename).name}:{at.lineno})") from error


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
        engine=scenario.engine,
        processes=_processes(scenario, seed, levels),
        max_depth=depth,
        seed=seed,
        tpot_limits_ns=scenario.tpot_limits_ns,
        structured=tuple(kind.structured for kind in scenario.workload.classes),
    )


def costs(scenario: Scenario, policy: PolicyConfig) -> tuple[Profile, Drafter | None]:
    """The profile that a run's steps are timed by, and the drafter if the policy drafts."""
    profile = profile_at(scenario.profile_path).in_mode(scenario.profile_mode)
    return profile, scenario.drafter_of(profile) if speculates(policy) else None


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


def _processes(scenario: Scenario, seed: int, depth: int) -> tuple[AcceptanceProcess, ...]:
    """One acceptance process per request class."""
    return tuple(
        build_process(config or NO_DRAFTS, seed, max(depth, 1), scenario.locate_acceptance)
        for config in scenario.acceptances
    )
