"""From a comparison to an engine's settings: per load the recommended policy, the best static, and off."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import simpy

from sim.cost.step_cost import StepCost
from sim.engine.simulate import build_replica
from sim.errors import InputError
from sim.export.ask import depth_rows, mean_context
from sim.export.loss import loss
from sim.export.recommend import Picks, gain, picks
from sim.export.settings import Engine, Rows, Settings, Wish, family
from sim.policies.config import Bounds, PolicyConfig
from sim.policies.off import OffConfig
from sim.results.compare import Cell as ComparedCell
from sim.results.compare import Difference
from sim.results.words import verdict
from sim.scenario.model import Cell, Scenario
from sim.sweep.prepare import costs, prepare
from sim.sweep.results import Results
from sim.workload.build import build_requests

Table = Callable[[Scenario, PolicyConfig], Rows]
_PRESETS: Final[dict[str, tuple[str, ...]]] = {
    "vllm": ("vllm_v1", "vllm_v1_adaptive", "vllm_v0"),
    "sglang": ("sglang",),
    "trtllm": ("trtllm",),
    "llamacpp": ("llamacpp",),
}
"""Presets that stand for an engine; the first is the one to take."""
_AND_STATIC: Final = ", the best static"
ROLES: Final = (
    *(role + also for role in ("recommended", "chosen") for also in ("", _AND_STATIC)),
    "best static",
    "off",
)
"""Every role that a block can have."""


@dataclass(frozen=True)
class Block:
    """One policy's settings with its expected gain.

    ``refused`` says why there are no settings, if there are none. ``lost`` is what the settings lose
    against the policy where they stand for another one (``None``: they are the policy itself), or why
    that is not known.
    """

    role: str
    policy: str
    gain: str
    settings: Settings
    refused: str = ""
    lost: Difference | str | None = None


@dataclass(frozen=True)
class LoadExport:
    """What to set at one load."""

    load: str
    verdict: str
    advice: str
    worth: bool
    context: int
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Order:
    """What is exported: all loads or one, the recommended policy or one of that label.

    ``simulate``: also simulate what settings lose that are not the policy itself.
    """

    load: str | None = None
    policy: str | None = None
    simulate: bool = True


def other_presets(engine: str, results: Results) -> list[str]:
    """A note for each preset of the runs that is not this engine's."""
    own = _PRESETS.get(engine, ())
    used = dict.fromkeys(cell.scenario.engine.preset for cell in results.cells)
    return [
        f"note: simulated with the preset {preset}; {own[0]} has the habits of {engine} (leadline explain)"
        for preset in used
        if own and preset not in own
    ]


def exports(results: Results, engine: Engine, order: Order = Order()) -> tuple[LoadExport, ...]:
    """The settings of every load; raises ``InputError`` for labels that there are not."""
    cells = results.cells if order.load is None else (results.cell(order.load),)
    compared = {cell.load: cell for cell in results.comparison.cells}
    table = _asked()
    return tuple(_At(results, engine, order, table, cell, compared[cell.label]).export() for cell in cells)


@dataclass(frozen=True)
class _At:
    """One load while it is exported."""

    results: Results
    engine: Engine
    order: Order
    table: Table
    cell: Cell
    compared: ComparedCell

    def export(self) -> LoadExport:
        """The picks of this load, each as the engine's settings."""
        scenario, comparison = self.cell.scenario, self.results.comparison
        found = picks(self.compared, scenario.policies, comparison, self.order.policy)
        requests = build_requests(scenario.workload, scenario.run.seeds[0], scenario.locate)
        return LoadExport(
            load=self.cell.label,
            verdict=verdict(self.compared, comparison),
            advice=found.advice,
            worth=found.worth,
            context=mean_context(requests),
            blocks=tuple(self._blocks(found)),
        )

    def _blocks(self, found: Picks) -> Iterator[Block]:
        role = "recommended" if self.order.policy is None else "chosen"
        if found.best_static is not None and found.recommended == found.best_static:
            yield self._block(f"{role}{_AND_STATIC}", found.best_static, found)
        else:
            if found.recommended is not None:
                yield self._block(role, found.recommended, found)
            if found.best_static is not None:
                yield self._block("best static", found.best_static, found)
        if found.off is None:
            yield Block("off", "off", "was not simulated", self.engine.off())
        else:
            yield Block("off", found.off.title, self._gain(found.off, found), self.engine.off())

    def _block(self, role: str, policy: PolicyConfig, found: Picks) -> Block:
        text = self._gain(policy, found)
        if isinstance(policy, OffConfig):
            return Block(role, policy.title, text, self.engine.off())
        static = None if found.best_static is None else found.best_static.k
        try:
            settings = self.engine.express(_wish(self.cell.scenario, policy, static, self.table))
        except InputError as error:
            return Block(role, policy.title, text, Settings(""), refused=str(error))
        return Block(role, policy.title, text, settings, lost=self._lost(policy, settings))

    def _gain(self, policy: PolicyConfig, found: Picks) -> str:
        return gain(self.compared, self.results.comparison, policy.title, found.off)

    def _lost(self, policy: PolicyConfig, settings: Settings) -> Difference | str | None:
        if settings.stands_for is None:
            return None
        if not self.order.simulate:
            return "what it loses was not simulated"
        comparison, seeds = self.results.comparison, self.results.seeds(self.cell.label)
        return loss(self.cell, policy, settings.stands_for, seeds, comparison.metric, comparison.error)


def _wish(scenario: Scenario, policy: PolicyConfig, static: int | None, table: Table) -> Wish:
    """The policy with everything that engines may ask about it."""
    _, drafter = costs(scenario, policy)
    assert drafter is not None
    name = scenario.drafter or ""
    return Wish(
        policy=policy,
        family=family(drafter, name),
        name=name,
        max_batch=scenario.engine.max_num_seqs,
        rows=lambda: table(scenario, policy),
        cost=lambda: _cost(scenario, policy),
        static=static,
    )


def _cost(scenario: Scenario, policy: PolicyConfig) -> StepCost:
    setup = prepare(scenario, policy, scenario.run.seeds[0])
    built = policy.build(Bounds(setup.max_depth))
    return build_replica(simpy.Environment(), setup, built).cost


def _asked() -> Table:
    """``depth_rows`` that asks once for loads that differ in nothing but when requests arrive."""
    known: dict[str, Rows] = {}

    def table(scenario: Scenario, policy: PolicyConfig) -> Rows:
        requests = build_requests(scenario.workload, scenario.run.seeds[0], scenario.locate)
        context = mean_context(requests)
        same = scenario.model_dump_json(
            exclude={
                **dict.fromkeys(("name", "description", "policies", "sweep"), True),
                "workload": {"arrival", "num_requests", "duration"},
            }
        )
        key = f"{policy.model_dump_json()} {context} {same}"
        if key not in known:
            known[key] = depth_rows(scenario, policy, context)
        return known[key]

    return table
