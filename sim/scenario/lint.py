"""Warnings about a valid scenario: settings that are allowed and seldom meant.

Each has a short id, shown in brackets; ``docs/scenarios.md`` explains them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np

from calibrate.profile import Profile
from sim.acceptance.build import build_process
from sim.cost.step_cost import StepCost
from sim.errors import Problem
from sim.policies.config import PolicyConfig
from sim.results.window import RequestsCut, TimeCut
from sim.scenario.estimate import Load, load_of, running
from sim.scenario.fleet_checks import fleet_lint
from sim.scenario.load import Loaded
from sim.scenario.model import Cell, Scenario
from sim.scenario.nodes import Finding, KeyPath
from sim.scenario.unused import unused_limits

FEW_REQUESTS: Final = 100


@dataclass(frozen=True)
class Lint:
    """One warning: its id, and where and what it is."""

    id: str
    problem: Problem

    def __str__(self) -> str:
        return f"{self.problem} [{self.id}]"


class _View:
    """One cell with what the lints need of it, computed when first needed."""

    def __init__(self, cell: Cell, profile: Profile, lengths: dict[tuple[object, int], float]) -> None:
        self.scenario, self.profile, self.lengths = cell.scenario, profile, lengths
        self.where = "" if cell.label == "base" else f" at {cell.label}"
        self.drafter = cell.scenario.drafter_of(profile)
        self.most = self.cap

    @cached_property
    def load(self) -> Load:
        """The cell's requests, at the rate of one replica."""
        load = load_of(self.scenario.workload, self.scenario.locate)
        return replace(load, rate_per_s=load.rate_per_s / self.scenario.fleet.serving)

    @property
    def cap(self) -> int:
        """The most requests that can run at once on one replica."""
        clients = self.scenario.workload.arrival.max_concurrency
        most = self.scenario.engine.beside(self.drafter).max_num_seqs
        return most if clients is None else min(most, -(-clients // self.scenario.fleet.serving))

    @cached_property
    def cost(self) -> StepCost:
        """Step costs up to the token budget."""
        engine = self.scenario.engine
        tokens = max(engine.max_num_batched_tokens, self.cap * (self.scenario.max_depth(self.drafter) + 1))
        return StepCost(self.profile, self.drafter, tokens, engine.behaviour.capture_sizes)

    def depth(self, policy: PolicyConfig) -> int:
        """The deepest that a policy can go here."""
        return min(policy.depth, self.scenario.max_depth(self.drafter, policy))

    def verified(self, policy: PolicyConfig) -> int:
        """The most draft tokens per sequence that a policy can have verified here."""
        return min(policy.verified, self.scenario.max_depth(self.drafter, policy))

    def running(self, depth: int) -> int:
        """Estimate of the requests that run at once at a uniform depth."""
        return running(self.load, self.cost, depth, self._tokens_per_round(depth), self.cap)

    def _tokens_per_round(self, depth: int) -> float:
        config = self.scenario.acceptances[0]
        if depth == 0 or config is None:
            return 1.0
        if (config, depth) not in self.lengths:
            process = build_process(config, 0, depth, self.scenario.locate_acceptance)
            self.lengths[config, depth] = process.expected_tokens_per_round(depth)
        return self.lengths[config, depth]


_Lints = Iterator[tuple[str, Finding]]


def lint(loaded: Loaded) -> tuple[Lint, ...]:
    """Every warning, in order of place; raises ``InputError`` when the requests cannot be made."""
    found: dict[tuple[str, KeyPath], Lint] = {}
    lengths: dict[tuple[object, int], float] = {}
    views = [_View(cell, loaded.files.profile(cell.scenario.profile or ""), lengths) for cell in loaded.cells]
    most = max(view.cap for view in views)
    for view in views:
        view.most = most
        for each in _LINTS:
            for name, finding in each(view):
                found.setdefault((name, finding.path), Lint(name, loaded.document.problem(finding)))
    for name, finding in _unused(views):
        found[name, finding.path] = Lint(name, loaded.document.problem(finding))
    return tuple(sorted(found.values(), key=lambda each: (each.problem, each.id)))


def _unused(views: list[_View]) -> _Lints:
    """Limits of the engine that are idle in every cell."""
    idle = [dict(unused_limits(view.scenario)) for view in views]
    for name, need in idle[0].items():
        if all(name in each for each in idle):
            message = f"is set and changes nothing without {need}"
            yield "engine-setting-unused", Finding(("engine", name), message)


def _thresholds(view: _View) -> _Lints:
    """Case U03: the load moves the batch over a policy's threshold and back."""
    for i, policy in enumerate(view.scenario.policies):
        changes: tuple[int, ...] = getattr(policy, "thresholds", ())
        for at in changes:
            if at > view.most:
                message = f"its depth changes at {at} requests, but at most {view.most} ever run at once"
                yield "threshold-unreachable", Finding(("policies", i), message)
        inside, about = _crossed(view, policy, changes)
        if inside:
            message = (
                f"its depth changes at {inside[0]} requests, and about {about} run at once{view.where}, "
                "so it may flip back and forth; compare it with the fixed depths on both sides"
            )
            yield "threshold-in-range", Finding(("policies", i), message)


def _crossed(view: _View, policy: PolicyConfig, changes: tuple[int, ...]) -> tuple[list[int], str]:
    """Thresholds within two standard deviations (Poisson) of the estimated batch, and the estimate."""
    reached = [at for at in changes if 1 < at <= view.cap]
    if not reached:
        return [], ""
    low, high = sorted((view.running(0), view.running(view.depth(policy))))
    inside = [at for at in reached if low - 2 * math.sqrt(low) < at <= high + 2 * math.sqrt(high)]
    return inside, f"{low}" if low == high else f"{low} to {high}"


def _budget(view: _View) -> _Lints:
    """Case U12: a decode takes k+1 tokens of the step's budget."""
    engine = view.scenario.engine
    policy = max(view.scenario.policies, key=view.verified)
    each = view.verified(policy) + 1
    fit = engine.max_num_batched_tokens // each
    if fit < view.cap:
        message = (
            f"{view.cap} sequences of 1 + {each - 1} tokens ({policy.title}) need {view.cap * each} tokens "
            f"a step, but the budget is {engine.max_num_batched_tokens}: {fit} decodes fit; "
            f"raise max_num_batched_tokens to {view.cap * each}"
        )
        yield "budget-caps-batch", Finding(("engine", "max_num_batched_tokens"), message)


def _graphs(view: _View) -> _Lints:
    """Steps that no captured graph holds run in eager mode; adaptive policies may never make them."""
    sizes = view.scenario.engine.behaviour.capture_sizes
    fixed = [(i, policy) for i, policy in enumerate(view.scenario.policies) if policy.policy == "static"]
    for i, policy in fixed if sizes else ():
        depth = view.depth(policy)
        busy = view.running(depth)
        tokens = busy * (depth + 1)
        if tokens > max(sizes):
            message = (
                f"about {busy} requests run at once{view.where}, so {policy.title} makes steps of {tokens} "
                f"tokens, and the largest captured graph holds {max(sizes)}; enlarge engine.capture_sizes"
            )
            yield "graph-too-small", Finding(("policies", i), message)


def _too_long(view: _View) -> _Lints:
    """Requests that the engine would refuse, or that no memory holds."""
    engine, requests = view.scenario.engine, view.load.requests
    length = requests.prompt_tokens + requests.output_tokens
    over = int(np.count_nonzero(length > engine.max_model_len))
    if over:
        message = (
            f"{over} of {len(requests)} requests are longer than {engine.max_model_len} tokens (longest "
            f"{length.max()}){view.where}; raise max_model_len"
        )
        yield "request-too-long", Finding(("engine", "max_model_len"), message)
    blocks = math.ceil(int(length.max()) / engine.block_size)
    if engine.kv_blocks is not None and engine.kv_blocks < blocks:
        message = (
            f"the longest request needs {blocks} KV blocks, and there are {engine.kv_blocks}; raise kv_blocks"
        )
        yield "kv-too-small", Finding(("engine", "kv_blocks"), message)


def _few(view: _View) -> _Lints:
    """Too little is measured to say anything."""
    scenario = view.scenario
    if len(scenario.run.seeds) == 1:
        message = "one seed gives no interval, so differences may be luck; take 3 or more"
        yield "one-seed", Finding(("run", "seeds"), message)
    left = _measured(scenario, view.load)
    if left < FEW_REQUESTS:
        message = f"{left} requests are measured{view.where}; percentiles need {FEW_REQUESTS} or more"
        key = "num_requests" if scenario.workload.num_requests else "duration"
        yield "few-requests", Finding(("workload", key), message)


def _measured(scenario: Scenario, load: Load) -> int:
    count, cut = len(load.requests), scenario.run.warmup
    if isinstance(cut, RequestsCut):
        return max(count, scenario.workload.num_requests or 0) - cut.requests
    if isinstance(cut, TimeCut):
        return int(np.count_nonzero(load.requests.arrival_ns >= cut.time))
    return count


def _fleet(view: _View) -> _Lints:
    """Settings of a fleet that change nothing, or not what they seem to."""
    yield from fleet_lint(view.scenario)


_LINTS: Final[tuple[Callable[[_View], _Lints], ...]] = (
    *(_thresholds, _budget, _graphs, _too_long, _few),
    _fleet,
)
