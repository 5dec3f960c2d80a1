"""A user's scenario as the reference engine serves it: what must be refused, and what is left out or cut.

The profile is replaced by the one calibrated here and the drafter by a drafter of the preset; requests,
acceptance, policies and the engine's limits stay. The reference engine does not know everything that the
simulator does (docs/validate.md): what would change a result is refused, all of it at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from calibrate.presets import Draft, Preset
from calibrate.validate.grid import Reach
from calibrate.validate.pace import is_open, limited
from calibrate.validate.plan import Load, Size, capacity_per_s
from sim.engine.config import EngineConfig
from sim.engine.simulate import Setup
from sim.errors import InputError
from sim.policies.config import Bounds, PolicyConfig
from sim.policies.custom import CustomConfig
from sim.scenario.load import Loaded, read_scenario
from sim.scenario.model import Cell, Scenario, speculates
from sim.sweep.prepare import prepare

LEFT_OUT: Final = {"capture_sizes": (), "dummy_drafts": False, "pad_new_decodes": False}
"""Habits of vLLM that the reference engine does not have, off on both sides."""
MOST_LOADS: Final = 3
SLACK: Final = 3
"""KV slots of a sequence behind its text, per draft: more than lookahead and drafts take."""
LEAST: Final = Reach(sequences=4, depth=1, tokens=16, longest=24)
"""The smallest bounds that make a calibration of their own."""


def loads_of(path: Path, size: Size, seed: int) -> tuple[tuple[Load, ...], list[str]]:
    """At most three loads of a scenario file, and what a reader must know of how they were made.

    Raises as ``read_scenario``, and ``InputError`` with everything that cannot be served.
    """
    loaded = _on_one_machine(path)
    chosen = _spread(loaded.cells)
    cut = [(cell.label, *_cut(cell.scenario, size, seed)) for cell in chosen]
    _refuse(path, (reason for _, scenario, setup in cut for reason in reasons(scenario, setup)))
    loads = tuple(_load(label, scenario, setup, seed) for label, scenario, setup in cut)
    return loads, list(_notes(loaded, chosen, loads))


def reach_of(loads: Iterable[Load]) -> Reach:
    """Bounds of everything that is served."""
    every = [LEAST, *(load.reach for load in loads)]
    return Reach(
        sequences=max(each.sequences for each in every),
        depth=max(each.depth for each in every),
        tokens=max(each.tokens for each in every),
        longest=max(each.longest for each in every),
    )


def check_models(preset: Preset, drafters: dict[str, Draft]) -> None:
    """Raise ``InputError`` for models that the reference engine does not run."""
    found = [f"--model {preset.model}: has recurrent layers"] if preset.shape.gdn else []
    for name, draft in drafters.items():
        if draft.kind in ("parallel", "ngram"):
            found.append(f"--drafter {name}: is {draft.kind}; it drafts one token after another")
        elif draft.build(draft.config, name).gdn:
            found.append(f"--drafter {name}: has recurrent layers")
    _refuse("these models", found)


# -- what cannot be served -------------------------------------------------------------------------


def _refuse(what: object, reasons: Iterable[str]) -> None:
    found = list(dict.fromkeys(reasons))
    if found:
        raise InputError("\n".join([f"{what}: the reference engine cannot serve this", *found]))


def reasons(scenario: Scenario, setup: Setup) -> Iterator[str]:
    """Everything about a cell that the reference engine cannot do, and what to do about it."""
    if len(scenario.policies) < 2:
        yield "policies: lists one; two or more can be compared"
    if scenario.fleet.count > 1 or not scenario.fleet.plain:
        yield f"fleet: has {scenario.fleet.count} replicas; one engine runs here, remove it"
    yield from (reason for policy in scenario.policies for reason in _policy_reasons(policy))
    if any(config is not None and config.match is not None for config in scenario.acceptances):
        yield "acceptance.match: is of look-up drafters; remove it"
    if setup.drafter is not None and setup.drafter.kind in ("ngram", "parallel"):
        yield f"drafter: {scenario.drafter} is {setup.drafter.kind}; it drafts one token after another"
    if setup.requests.abort_ns is not None:
        yield "workload: clients of the trace go away; no client does so here"
    if setup.requests.timeout_ns is not None:
        yield "workload.timeout: clients give up; none does so here, remove it"
    yield from _engine_reasons(scenario.engine, setup)


def _policy_reasons(config: PolicyConfig) -> Iterator[str]:
    policy = config.build(Bounds(config.verified))
    if policy.tree is not None and policy.tree.width > 1:
        yield f"policies: {config.title} drafts trees; the engine drafts chains"
    if policy.acceptance_loss:
        yield f"policies: {config.title} has an acceptance_loss, which fixed luck does not know; set it to 0"


def _engine_reasons(engine: EngineConfig, setup: Setup) -> Iterator[str]:
    if engine.behaviour.prefix_caching:
        yield "engine.prefix_caching: is on; set it to false"
    longest = _longest(setup)
    if longest + setup.max_depth >= engine.max_model_len:
        text = f"a request of {longest} tokens"
        yield f"engine.max_model_len: {text} comes near {engine.max_model_len}; raise it or limit the lengths"
    enough = _blocks(engine, setup, min(engine.max_num_seqs, _in_flight(setup)))
    if engine.kv_blocks is not None and engine.kv_blocks < enough:
        yield (
            f"engine.kv_blocks: {engine.kv_blocks} may run out, and nothing is preempted here; {enough} are "
            "enough for the longest requests at once"
        )


# -- what is served --------------------------------------------------------------------------------


def _cut(scenario: Scenario, size: Size, seed: int) -> tuple[Scenario, Setup]:
    """The scenario with no more requests than are served, and its setup."""
    requests = _setup(scenario, seed).requests
    served = max(size.full, requests.max_concurrency or 0)
    workload = limited(scenario.workload, served, len(requests))
    policies = tuple(_found(scenario, policy) for policy in scenario.policies)
    cut = scenario.model_copy(update={"workload": workload, "policies": policies})
    return cut, _setup(cut, seed)


def _found(scenario: Scenario, config: PolicyConfig) -> PolicyConfig:
    """A user's own policy, found from the scenario's folder and called as before."""
    if isinstance(config, CustomConfig):
        where = {"search": str(scenario.folder.absolute() / config.search), "label": config.title}
        return config.model_copy(update=where)
    return config


def _setup(scenario: Scenario, seed: int) -> Setup:
    """The scenario under the policy that the engine must be largest for."""
    deepest = max(scenario.policies, key=lambda policy: (speculates(policy), policy.verified))
    return prepare(scenario, deepest, seed)


def _load(label: str, scenario: Scenario, setup: Setup, seed: int) -> Load:
    engine = _engine(scenario.engine, setup)
    reach = Reach(
        sequences=engine.max_num_seqs,
        depth=setup.max_depth,
        tokens=min(engine.max_num_batched_tokens, _most_tokens(engine, setup)),
        longest=_longest(setup),
    )
    # On the scenario's own profile, with its own engine: what its rates were meant for.
    capacity = capacity_per_s(scenario, seed) if is_open(scenario.workload) else 1.0
    return Load(label, scenario.model_copy(update={"engine": engine}), reach, capacity)


def _engine(engine: EngineConfig, cut: Setup) -> EngineConfig:
    """The engine with as many places as are ever taken, and memory for all of them."""
    places = min(engine.max_num_seqs, _in_flight(cut))
    changed: dict[str, Any] = {
        **LEFT_OUT,
        "pad_queries": True,  # as the reference engine lays them out
        "max_num_seqs": places,
        "kv_blocks": _blocks(engine, cut, places),
        "kv_cache_memory": None,
        "step_overhead": 0,
        "sampling": "greedy",
    }
    return engine.model_copy(update=changed)


def _in_flight(setup: Setup) -> int:
    """Most requests that can be in the engine at once."""
    r = setup.requests
    return min(len(r), r.max_concurrency or len(r))


def _longest(setup: Setup) -> int:
    return int((setup.requests.prompt_tokens + setup.requests.output_tokens).max())


def _most_tokens(engine: EngineConfig, setup: Setup) -> int:
    """Tokens of a step in which all places have their longest prompts or their drafts."""
    each = max(int(setup.requests.prompt_tokens.max()), setup.max_depth + 1)
    return engine.max_num_seqs * each


def _blocks(engine: EngineConfig, setup: Setup, places: int) -> int:
    """KV blocks that hold ``places`` of the longest requests, and the null block."""
    slots = _longest(setup) + SLACK * (setup.max_depth + 1)
    return places * -(-slots // engine.block_size) + 2


# -- which loads -----------------------------------------------------------------------------------


def _on_one_machine(path: Path) -> Loaded:
    """The scenario without its choice of profiles and drafters: here there is one of each."""
    loaded = read_scenario(path)
    sweep = dict(loaded.scenario.written.get("sweep") or {})
    first = {name: _first(sweep.pop(name)) for name in ("profile", "drafter") if name in sweep}
    if loaded.scenario.profiles:
        first |= {"profile": next(iter(loaded.scenario.profiles.values())), "profiles": {}}
    return read_scenario(path, {**first, "sweep": sweep}) if first else loaded


def _first(values: Any) -> Any:
    return next(iter(values.values() if isinstance(values, dict) else values))


def _spread(cells: tuple[Cell, ...]) -> tuple[Cell, ...]:
    """The first cell, the one in the middle and the last."""
    last = len(cells) - 1
    chosen = sorted({round(i * last / (MOST_LOADS - 1)) for i in range(MOST_LOADS)})
    return tuple(cells[i] for i in chosen)


def _notes(loaded: Loaded, chosen: tuple[Cell, ...], loads: tuple[Load, ...]) -> Iterator[str]:
    scenario = loaded.scenario
    if len(chosen) < len(loaded.cells):
        names = "; ".join(cell.label for cell in chosen)
        yield f"{len(chosen)} of {len(loaded.cells)} cells are served: {names}"
    if any(is_open(load.scenario.workload) for load in loads):
        yield "rates keep their share of what plain decoding can take with a full batch"
    engine = scenario.engine
    off = [name for name in LEFT_OUT if getattr(engine.behaviour, name)]
    off += [name for name in ("kv_cache_memory", "step_overhead") if getattr(engine, name)]
    if off:
        yield f"the engine has no {', '.join(off)}"
    if engine.sampling == "T=1":
        yield "tokens are sampled greedily"
    for load in loads:
        r = load.reach
        yield (
            f"{load.label}: {_count(load)}, {r.sequences} sequences of up to {r.longest} tokens, "
            f"{r.tokens} tokens a step, depth {r.depth}"
        )


def _count(load: Load) -> str:
    workload = load.scenario.workload
    count = workload.num_requests or getattr(workload.arrival, "limit", None)
    return f"at most {count} requests"
