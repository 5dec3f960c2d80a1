"""Checks of ``fleet:`` against itself and the rest: groups that can run, events that can happen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from calibrate.profile import Profile
from sim.engine.config import EngineConfig
from sim.errors import InputError
from sim.fleet.config import FleetConfig, FleetEvent, Group, Scale
from sim.policies.config import Bounds, PolicyConfig
from sim.policies.custom import CustomConfig
from sim.scenario.model import Scenario, speculates
from sim.scenario.nodes import Finding, KeyPath
from sim.scenario.own_policy import own_policy_problem
from sim.scenario.words import did_you_mean

Findings = Iterator[Finding]
ReadProfile = Callable[[str], Profile]
_AT: Final[KeyPath] = ("fleet",)


def fleet_findings(scenario: Scenario) -> Findings:
    """What is wrong with the fleet by itself."""
    fleet = scenario.fleet
    if not isinstance(fleet.replicas, int) and fleet.scale is not None:
        yield Finding((*_AT, "scale"), "is of equal replicas; write it into the group that scales", True)
    for path, group in _places(fleet):
        yield from _scale_findings(path, group)
    yield from _role_findings(scenario)
    for i, event in enumerate(fleet.events):
        yield from _event_findings(fleet, (*_AT, "events", i), event)
    yield from _overlaps(fleet.events)
    if fleet.lockstep and any(group.scale for group in fleet.groups):
        yield Finding(
            (*_AT, "lockstep"), "is of the ranks of one engine, which come and go as one; remove scale"
        )
    if fleet.lockstep and any(event.fail is not None for event in fleet.events):
        yield Finding((*_AT, "lockstep"), "is of the ranks of one engine, which fail as one; remove fail")
    if not fleet.plain:
        yield from _engine_findings(scenario)
    if fleet.replicas != 1:
        yield from _front_end_findings(scenario)
    if fleet.missing_draft_kv == "lose" and "acceptance_loss" not in fleet.model_fields_set:
        message = "is missing, and missing_draft_kv: lose needs it; add for example acceptance_loss: 0.3"
        yield Finding(_AT, message, True, (*_AT, "acceptance_loss"))


def _engine_findings(scenario: Scenario) -> Findings:
    """Switches of the engine that replicas do not know that come and go."""
    engines: list[tuple[KeyPath, EngineConfig]] = [(("engine",), scenario.engine)]
    engines += [((*path, "engine"), group.engine) for path, group in _places(scenario.fleet) if group.engine]
    for path, engine in engines:
        if engine.behaviour.async_scheduling:
            message = (
                "async_scheduling is known of equal replicas behind counting routers alone; set it false"
            )
            yield Finding(path, message)


def _front_end_findings(scenario: Scenario) -> Findings:
    """Times of a front end, which only a replica by itself has."""
    for name in ("frontend_time", "frontend_time_per_token", "answer_time"):
        if getattr(scenario.engine, name):
            message = f"{name} is known of one replica alone; set it 0, or serve by one replica"
            yield Finding(("engine", name), message)


def _places(fleet: FleetConfig) -> Iterator[tuple[KeyPath, Group]]:
    """Every group with the place where it is written; equal replicas are written as the fleet itself."""
    if isinstance(fleet.replicas, int):
        yield _AT, fleet.groups[0]
    else:
        for i, group in enumerate(fleet.replicas):
            yield (*_AT, "replicas", i), group


def _scale_findings(path: KeyPath, group: Group) -> Findings:
    rule = group.scale
    if rule is None:
        return
    if rule.min > rule.max:
        message = f"is {rule.min}, more than max, which is {rule.max}"
        yield Finding((*path, "scale", "min"), message)
    elif not rule.min <= group.count <= rule.max:
        message = f"goes from {rule.min} to {rule.max}, and {group.count} run at the start; make them fit"
        yield Finding((*path, "scale"), message, True)
    yield from _metric_findings(path, rule)


def _metric_findings(path: KeyPath, rule: Scale) -> Findings:
    if rule.metric in ("busy", "kv") and rule.target > 1:
        message = f"is {rule.target:g}; {rule.metric} is a share, so it must be at most 1"
        yield Finding((*path, "scale", "target"), message)


def _role_findings(scenario: Scenario) -> Findings:
    groups = scenario.fleet.groups
    roles = [group.role for group in groups]
    if "prefill" in roles and set(roles) == {"prefill"}:
        yield Finding((*_AT, "replicas"), "only compute prompts; add a group with role: decode", True)
    if "decode" in roles and set(roles) == {"decode"}:
        yield Finding((*_AT, "replicas"), "only decode; add a group with role: prefill", True)
    if "prefill" not in roles:
        return
    for path, group in _places(scenario.fleet):
        engine = group.engine if group.engine is not None else scenario.engine
        if engine.behaviour.preemption == "swap" and group.role != "prefill":
            message = "moves preempted KV to the host, which is not modelled beside KV that arrives by link"
            yield Finding((*path, "engine") if group.engine else ("engine",), message)


def _event_findings(fleet: FleetConfig, path: KeyPath, event: FleetEvent) -> Findings:
    if (event.fail is None) == (event.slow is None):
        yield Finding(path, "needs one of fail and slow, with the number of a replica")
        return
    key, most = ("fail" if event.fail is not None else "slow"), sum(fleet.sizes) - 1
    if event.replica > most:
        yield Finding((*path, key), f"is {event.replica}; replicas are numbered from 0 to {most}")
    if event.fail is not None and "factor" in event.model_fields_set:
        yield Finding((*path, "factor"), "is of slow replicas; a failed one does nothing at all")
    if event.lasts == 0:
        yield Finding((*path, "for"), "is 0; leave it out for ever, or give a time")


def _overlaps(events: tuple[FleetEvent, ...]) -> Findings:
    """A replica that is down cannot fail."""
    until: dict[int, float] = {}
    order = sorted((event.at, i) for i, event in enumerate(events) if event.fail is not None)
    for at, i in order:
        replica = events[i].replica
        if at < until.get(replica, -1.0):
            message = f"fails replica {replica}, which is still down then; let it come back before"
            yield Finding((*_AT, "events", i), message)
        lasts = events[i].lasts
        until[replica] = float("inf") if lasts is None else at + lasts


def group_findings(scenario: Scenario, read: ReadProfile) -> Findings:
    """What is wrong with the groups of a fleet and what they name; ``read`` may raise what is wrong."""
    if isinstance(scenario.fleet.replicas, int):
        return
    limit = scenario.engine.max_model_len
    for path, group in _places(scenario.fleet):
        own = group.engine.model_fields_set if group.engine is not None else ()
        if group.engine is not None and "max_model_len" in own and group.engine.max_model_len != limit:
            message = f"is {group.engine.max_model_len}, and the scenario's is {limit}; any replica may "
            yield Finding((*path, "engine", "max_model_len"), message + "get any request: make them one")
        try:
            profile = read(group.profile or scenario.profile or "")
        except (InputError, ValueError, RecursionError) as error:
            if group.profile is not None:
                yield Finding((*path, "profile"), str(error).replace("\n", "; "))
            continue
        yield from _drafter_findings(scenario, path, group, profile)
        if group.policy is not None:
            yield from _policy_findings(scenario, (*path, "policy"), group, group.policy)


def _drafter_findings(scenario: Scenario, path: KeyPath, group: Group, profile: Profile) -> Findings:
    """Drafters that the group's policies need and its profile has."""
    named = group.drafter or scenario.drafter
    policies = (group.policy,) if group.policy is not None else scenario.policies
    if not any(speculates(policy) for policy in policies) and group.drafter is None:
        return
    known = profile.drafters
    if named is None:
        if group.policy is not None:
            hint = f"add drafter: ({', '.join(known) or 'none; choose another profile'})"
            yield Finding((*path, "policy"), f"{group.policy.title} drafts, but there is no drafter; {hint}")
        return
    if named not in known and (group.profile is not None or group.drafter is not None):
        where = (*path, "drafter") if group.drafter is not None else (*path, "profile")
        yield Finding(
            where, f"profile {profile.name!r} has no drafter {named!r}" + did_you_mean(named, known)
        )
        return
    deepest = profile.drafters[named].max_depth if named in known else None
    if group.policy is not None and deepest is not None and group.policy.depth > deepest:
        message = f"asks for depth {group.policy.depth}, but drafter {named!r} allows {deepest}; lower it"
        yield Finding((*path, "policy"), message)


def _policy_findings(scenario: Scenario, path: KeyPath, group: Group, policy: PolicyConfig) -> Findings:
    """What a group's own policy asks of acceptance, and whether a user's own class is there."""
    if isinstance(policy, CustomConfig):
        problem = own_policy_problem(policy, scenario.folder)
        if problem is not None:
            yield Finding((*path, "policy"), problem)
        return
    if not speculates(policy):
        return
    stated = [group.acceptance] if group.acceptance is not None else list(scenario.acceptances)
    if any(config is None for config in stated):
        yield Finding(path, f"{policy.title} drafts, and acceptance is missing; add it to the group")
    built = policy.build(Bounds(policy.verified))
    known = [config for config in stated if config is not None]
    if built.wants_confidence and any(c.confidence is None and c.process != "trace" for c in known):
        message = f"{policy.title} needs the drafter's confidence, but acceptance states none"
        yield Finding(path, f"{message}; add for example confidence: {{auc: 0.85}}")
    if built.tree is not None and built.tree.width > 1 and any(c.sibling is None for c in known):
        message = "branches, but acceptance does not state the chance of lower-ranked candidates"
        yield Finding(path, f"{message}; add for example sibling: 0.25")


def fleet_lint(scenario: Scenario) -> Iterator[tuple[str, Finding]]:
    """Settings of a fleet that are allowed and seldom meant."""
    fleet = scenario.fleet
    roles = {group.role for group in fleet.groups}
    apart = "prefill" in roles
    if not apart:
        for key in ("kv_bandwidth", "kv_latency", "missing_draft_kv", "acceptance_loss"):
            if key in fleet.model_fields_set:
                message = "is of KV that travels, and no group has role: prefill; it changes nothing"
                yield "kv-link-unused", Finding((*_AT, key), message)
    elif fleet.kv_bandwidth is None:
        message = "no kv_bandwidth: KV travels in no time; state the link's, as kv_bandwidth: 50GB/s"
        yield "kv-link-unlimited", Finding((*_AT, "replicas"), message)
    if fleet.router == "prefix_aware" and not scenario.engine.behaviour.prefix_caching:
        message = "follows prefixes, and the engine caches none; set engine.prefix_caching: true"
        yield "prefix-router-without-cache", Finding((*_AT, "router"), message)
    for key, router in (("report_period", "least_kv"), ("prefix", "prefix_aware")):
        if key in fleet.model_fields_set and fleet.router != router:
            message = f"is of the router {router}, and this one is {fleet.router}; it changes nothing"
            yield "router-setting-unused", Finding((*_AT, key), message)
    if "retry" in fleet.model_fields_set and not any(event.fail is not None for event in fleet.events):
        yield "retry-unused", Finding((*_AT, "retry"), "is of failures, and no event is one")
    yield from _lint_groups(fleet)


def _lint_groups(fleet: FleetConfig) -> Iterator[tuple[str, Finding]]:
    for path, group in _places(fleet):
        if group.drafter is not None and group.acceptance is None:
            message = "has another drafter and the scenario's acceptance; add its own acceptance to the group"
            yield "drafter-without-acceptance", Finding((*path, "drafter"), message)
