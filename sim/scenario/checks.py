"""Checks across sections: names that must exist, and values that must fit each other.

Each check is a generator of findings over a valid ``Scenario``; it is skipped when a section it
reads was wrong already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from calibrate.profile import Profile, load_profile
from sim.acceptance.config import TraceAcceptance
from sim.errors import InputError
from sim.policies.config import Bounds
from sim.policies.custom import CustomConfig
from sim.results.window import RequestsCut
from sim.scenario import catalogue
from sim.scenario.fleet_checks import fleet_findings, group_findings
from sim.scenario.model import Scenario, speculates
from sim.scenario.nodes import Finding, KeyPath
from sim.scenario.own_policy import own_policy_problem
from sim.scenario.words import did_you_mean
from sim.workload.arrival_config import ProfileArrival, TraceArrival
from sim.workload.grids import WorkloadFile, load_workload_file
from sim.workload.length_config import Lengths, QuantileLength

Findings = Iterator[Finding]


@dataclass
class Files:
    """Profiles and workloads read so far, so that the cells of a sweep share them."""

    folder: Path
    profiles: dict[str, Profile] = field(default_factory=dict)
    workloads: dict[str, WorkloadFile] = field(default_factory=dict)

    def profile(self, name: str) -> Profile:
        """The profile; raises ``InputError``, or ``ValueError`` for a damaged one."""
        if name not in self.profiles:
            self.profiles[name] = load_profile(catalogue.locate("profile", name, self.folder))
        return self.profiles[name]

    def workload(self, name: str) -> WorkloadFile:
        """The workload file; raises ``InputError``, or ``ValueError`` for a damaged one."""
        if name not in self.workloads:
            self.workloads[name] = load_workload_file(catalogue.locate("workload", name, self.folder))
        return self.workloads[name]


def named_profiles(scenario: Scenario) -> list[tuple[KeyPath, str]]:
    """Every profile with the place where it is named."""
    many: list[tuple[KeyPath, str]] = [
        (("profiles", label), name) for label, name in scenario.profiles.items()
    ]
    return many if scenario.profile is None else [(("profile",), scenario.profile), *many]


def _profiles(scenario: Scenario, files: Files) -> Findings:
    if scenario.profile is None and not scenario.profiles:
        hint = "a name that `leadline profile list` lists, or a path"
        yield Finding((), f"is missing; add it: {hint}", True, ("profile",))
    if scenario.profile is not None and scenario.profiles:
        yield Finding(("profiles",), "stands beside profile; give one of them", True)
    for path, name in named_profiles(scenario):
        try:
            files.profile(name)
        except (InputError, ValueError, RecursionError) as error:
            yield Finding(path, _own_words(error, files.folder, name))


def _own_words(error: Exception, folder: Path, name: str) -> str:
    """The message with the file's name as the user wrote it, on one line."""
    return str(error).replace(str(folder / name), name).replace("\n", "; ")


def _good_profiles(scenario: Scenario, files: Files) -> Iterator[tuple[str, Profile]]:
    for _, name in named_profiles(scenario):
        try:
            yield name, files.profile(name)
        except (InputError, ValueError, RecursionError):
            continue


def _drafter(scenario: Scenario, files: Files) -> Findings:
    drafting = [i for i, policy in enumerate(scenario.policies) if speculates(policy)]
    for name, profile in _good_profiles(scenario, files):
        known = profile.drafters
        if scenario.drafter is None and drafting:
            names = ", ".join(known) or "none; choose another profile"
            title = scenario.policies[drafting[0]].title
            message = f"{title} drafts, but there is no drafter; add drafter: ({names})"
            yield Finding(("policies", drafting[0]), message)
        if scenario.drafter is not None and scenario.drafter not in known:
            message = f"profile {name!r} has no drafter {scenario.drafter!r}"
            yield Finding(("drafter",), message + did_you_mean(scenario.drafter, known))


def _acceptance(scenario: Scenario, files: Files) -> Findings:
    drafting = next((policy.title for policy in scenario.policies if speculates(policy)), None)
    if drafting is None or scenario.acceptance is not None:
        return
    bare = [i for i, kind in enumerate(scenario.workload.classes) if kind.acceptance is None]
    if bare or not scenario.workload.classes:
        example = "{process: iid, alpha: 0.7}"
        message = f"is missing, and {drafting} drafts; add it, for example acceptance: {example}"
        yield Finding((), message, True, ("acceptance",))


def _signals(scenario: Scenario, files: Files) -> Findings:
    """Confidence and siblings that a policy asks for; recorded traces may bring their own confidence."""
    stated = [config for config in scenario.acceptances if config is not None]
    for i, policy in enumerate(scenario.policies):
        if isinstance(policy, CustomConfig):
            continue
        built = policy.build(Bounds(policy.verified))
        silent = [c for c in stated if c.confidence is None and c.process != "trace"]
        if built.wants_confidence and silent:
            message = f"{policy.title} needs the drafter's confidence, but acceptance states none"
            yield Finding(("policies", i), f"{message}; add for example confidence: {{auc: 0.85}}")
        if built.tree is not None and built.tree.width > 1 and any(c.sibling is None for c in stated):
            message = "branches, but acceptance does not state the chance of lower-ranked candidates"
            yield Finding(("policies", i), f"{message}; add for example sibling: 0.25")


def _depths(scenario: Scenario, files: Files) -> Findings:
    limits: list[tuple[str, int | None]] = []
    for name, profile in _good_profiles(scenario, files):
        drafter = profile.drafters.get(scenario.drafter or "")
        limits.append((f"drafter {scenario.drafter!r} of {name}", drafter.max_depth if drafter else None))
    most = scenario.run.max_depth
    for i, policy in enumerate(scenario.policies):
        written = next((key for key in ("k", "k_max", "table") if key in policy.model_fields_set), None)
        if written is not None and most is not None and policy.verified > most:
            what = "depth" if policy.verified == policy.depth else "nodes"
            message = f"asks for {what} {policy.verified}, but run.max_depth allows {most}; lower it"
            yield Finding(("policies", i, written if what == "depth" else "nodes"), message)
        for whose, limit in limits:
            if written is not None and limit is not None and policy.depth > limit:
                message = f"asks for depth {policy.depth}, but {whose} allows {limit}; lower it"
                yield Finding(("policies", i, written), message)


def _labels(scenario: Scenario, files: Files) -> Findings:
    seen: dict[str, int] = {}
    for i, label in enumerate(scenario.labels):
        if label in seen:
            yield Finding(("policies", i), f"is called {label!r}, as policies[{seen[label]}] is; set label")
        seen.setdefault(label, i)
    baseline = scenario.run.baseline
    if baseline is not None and baseline not in seen:
        yield Finding(("run", "baseline"), f"no policy is called {baseline!r}{did_you_mean(baseline, seen)}")


def _own_policies(scenario: Scenario, files: Files) -> Findings:
    for i, policy in enumerate(scenario.policies):
        problem = own_policy_problem(policy, files.folder)
        if problem is not None:
            yield Finding(("policies", i, "policy"), problem)


def _workload_files(scenario: Scenario, files: Files) -> Findings:
    for path, name, part in _named_workloads(scenario):
        try:
            workload = files.workload(name)
        except (InputError, ValueError, RecursionError) as error:
            yield Finding(path, _own_words(error, files.folder, name))
            continue
        if getattr(workload, part) is None:
            yield Finding(path, f"workload {name!r} has no {part}; name another")


def _named_workloads(scenario: Scenario) -> Iterator[tuple[KeyPath, str, str]]:
    """Workload files with the place where they are named and the part that is wanted of them."""
    workload = scenario.workload
    if isinstance(workload.arrival, ProfileArrival):
        yield ("workload", "arrival", "from"), workload.arrival.source, "rate"
    yield from _grids(workload.lengths, ("workload", "lengths"))
    for i, kind in enumerate(workload.classes):
        yield from _grids(kind.lengths, ("workload", "classes", i, "lengths"))


def _grids(lengths: Lengths | None, path: KeyPath) -> Iterator[tuple[KeyPath, str, str]]:
    if lengths is None:
        return
    if lengths.joint is not None:
        yield (*path, "joint"), lengths.joint, "joint"
    for side, length in (("input", lengths.input), ("output", lengths.output)):
        if isinstance(length, QuantileLength) and length.source is not None:
            yield (*path, side, "from"), length.source, length.column or side


def _traces(scenario: Scenario, files: Files) -> Findings:
    arrival = scenario.workload.arrival
    if isinstance(arrival, TraceArrival) and not catalogue.exists(files.folder / arrival.path):
        message = f"there is no file {arrival.path!r}; paths count from the scenario's folder"
        yield Finding(("workload", "arrival", "path"), message)
    paths: list[KeyPath] = [("workload", "classes", i) for i in range(len(scenario.workload.classes))]
    choices = [
        ((), scenario.acceptance),
        *zip(paths, (k.acceptance for k in scenario.workload.classes), strict=True),
    ]
    for path, acceptance in choices:
        if isinstance(acceptance, TraceAcceptance):
            try:
                catalogue.locate("acceptance", acceptance.path, files.folder)
            except InputError as error:
                yield Finding((*path, "acceptance", "path"), str(error))


def _measured(scenario: Scenario, files: Files) -> Findings:
    slos = scenario.slos.values()
    if scenario.run.metric == "goodput" and not any(slo.model_fields_set for slo in slos):
        yield Finding(
            ("run", "metric"), "goodput counts requests that meet an slo, and there is none; add slo"
        )
    cut, requests = scenario.run.warmup, scenario.workload.num_requests
    if isinstance(cut, RequestsCut) and requests is not None and cut.requests >= requests:
        message = f"cuts {cut.requests} of {requests} requests, and none is left; lower it"
        yield Finding(("run", "warmup", "requests"), message)


def _fleet(scenario: Scenario, files: Files) -> Findings:
    yield from fleet_findings(scenario)


def _groups(scenario: Scenario, files: Files) -> Findings:
    yield from group_findings(scenario, files.profile)


CHECKS: Final[tuple[tuple[Callable[[Scenario, Files], Findings], frozenset[str]], ...]] = (
    (_profiles, frozenset({"profile", "profiles"})),
    (_drafter, frozenset({"profile", "profiles", "drafter", "policies"})),
    (_acceptance, frozenset({"acceptance", "workload", "policies"})),
    (_signals, frozenset({"acceptance", "workload", "policies"})),
    (_depths, frozenset({"profile", "profiles", "drafter", "policies", "run"})),
    (_labels, frozenset({"policies", "run"})),
    (_own_policies, frozenset({"policies"})),
    (_workload_files, frozenset({"workload"})),
    (_traces, frozenset({"workload", "acceptance"})),
    (_measured, frozenset({"workload", "slo", "run"})),
    (_fleet, frozenset({"fleet", "engine"})),
    (_groups, frozenset({"fleet", "engine", "profile", "drafter", "policies", "acceptance", "workload"})),
)


def cross_check(scenario: Scenario, files: Files, wrong: frozenset[str]) -> Findings:
    """Findings of every check that reads none of the sections that are ``wrong``."""
    for check, reads in CHECKS:
        if not reads & wrong:
            yield from check(scenario, files)
