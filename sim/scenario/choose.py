"""A scenario narrowed by flags of the command line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from sim.errors import InputError
from sim.scenario.load import Loaded, check_document, read_scenario
from sim.scenario.model import Scenario
from sim.scenario.words import did_you_mean
from sim.workload.arrival_config import TraceArrival

QUICK_REQUESTS: Final = 300


@dataclass(frozen=True)
class Choice:
    """What the user wants of a scenario: seeds, some of its policies, or a quick look."""

    seed: int | None = None
    seeds: int | None = None
    policies: str | None = None
    quick: bool = False
    precision: str | None = None


def read_chosen(path: Path, choice: Choice) -> Loaded:
    """The scenario of a file as chosen; raises as ``read_scenario``, and for unknown labels."""
    return choose(read_scenario(path), choice)


def choose(loaded: Loaded, choice: Choice) -> Loaded:
    """A scenario as chosen; raises ``InputError`` for unknown labels, and ``ScenarioError``."""
    scenario = loaded.scenario
    overrides = {
        **(_quick(scenario) if choice.quick else {}),
        **_seeds(scenario, choice),
        **_policies(scenario, choice.policies),
        **({} if choice.precision is None else {"run.precision": choice.precision}),
    }
    if not overrides:
        return loaded
    document = replace(loaded.document, data=dict(scenario.written))
    return check_document(document, scenario.folder, scenario.name, overrides)


def _seeds(scenario: Scenario, choice: Choice) -> dict[str, Any]:
    """``--seeds`` of them from ``--seed`` on; each alone leaves the other as the scenario has it."""
    if choice.seed is None and choice.seeds is None:
        return {}
    first = scenario.run.seeds[0] if choice.seed is None else choice.seed
    count = choice.seeds or (1 if choice.quick else len(scenario.run.seeds))
    return {"run.seeds": list(range(first, first + count))}


def _policies(scenario: Scenario, labels: str | None) -> dict[str, Any]:
    """The policies by label, in the scenario's order; the baseline moves on if it is not among them."""
    if labels is None:
        return {}
    wanted = _split(labels, scenario.labels)
    written = scenario.written["policies"]
    kept = [entry for entry, label in zip(written, scenario.labels, strict=True) if label in wanted]
    baseline = scenario.run.baseline
    return {"policies": kept, "run.baseline": baseline if baseline in wanted else None}


def _split(labels: str, known: tuple[str, ...]) -> set[str]:
    """Labels may hold commas themselves, as in ``goodput(k_max=3, start=0.5)``: the longest fits first."""
    wanted, rest = set(), labels.strip()
    while rest:
        fits = [label for label in known if rest == label or rest.startswith(f"{label},")]
        if not fits:
            name = rest.split(",")[0]
            raise InputError(f"--policies: no policy is called {name!r}{did_you_mean(name, known)}")
        label = max(fits, key=len)
        wanted.add(label)
        rest = rest[len(label) :].lstrip(",").strip()
    if not wanted:
        raise InputError(f"--policies: names none; take some of {', '.join(known)}")
    return wanted


def _quick(scenario: Scenario) -> Mapping[str, Any]:
    """One seed and few requests, so that the first table is there in seconds."""
    workload = scenario.workload
    if isinstance(workload.arrival, TraceArrival):
        size: dict[str, Any] = {
            "workload.arrival.limit": min(QUICK_REQUESTS, workload.arrival.limit or QUICK_REQUESTS)
        }
        size |= {} if workload.num_requests is None else {"workload.num_requests": None}
    else:
        size = {"workload.num_requests": min(QUICK_REQUESTS, workload.num_requests or QUICK_REQUESTS)}
    return {**size, "run.seeds": [scenario.run.seeds[0]], "run.warmup": "mser5"}
