"""Policies to express, with tables that are known beforehand instead of asked for."""

from __future__ import annotations

import json
import shlex
from functools import cache
from pathlib import Path
from typing import Any

import simpy
import yaml
from pydantic import TypeAdapter

from calibrate.profile import Drafter
from sim.cost.step_cost import StepCost
from sim.engine.simulate import build_replica
from sim.export.settings import Rows, Wish
from sim.policies.config import Bounds, PolicyConfig
from sim.policies.registry import POLICIES
from sim.scenario.policy_choice import PolicyChoice
from sim.sweep.prepare import prepare
from tests.scenario.support import VALID, read

SCHEMAS = Path(__file__).parent / "schemas"
FAMILIES = ("draft_model", "eagle", "eagle3", "mtp", "ngram", "suffix", "dflash", "dspark", "medusa", "pard")
ROWS: Rows = ((1, 16, 5), (17, 64, 3), (65, 256, 0))
_CHOICE: TypeAdapter[PolicyConfig] = TypeAdapter(PolicyChoice)
_GIVEN: dict[str, dict[str, Any]] = {
    "static": {"k": 3},
    "tree": {"width": 2, "k": 3, "nodes": 6},
    "disable_by_batch_size": {"k": 3, "threshold": 64},
    "per_batch_size": {"table": [[1, 8, 5], [9, 64, 2]]},
    "per_batch_and_context": {"table": [[1, 64, 1, 4096, 3], [1, 64, 4097, 8192, 5]]},
    "draft_len_schedule": {"schedule": {"4": 4, "8": 2}},
}


def policy(name: str, **given: Any) -> PolicyConfig:
    """A policy as the YAML would give it."""
    return _CHOICE.validate_python({"policy": name, **(given or _GIVEN.get(name, {}))})


def policies() -> list[PolicyConfig]:
    """One of every kind that an engine could be asked for."""
    return [policy(name) for name in POLICIES if name not in ("oracle", "off")]


def wish(
    of: PolicyConfig, family: str = "eagle3", rows: Rows = ROWS, static: int | None = 3, most: int = 256
) -> Wish:
    """A wish whose table is given."""
    return Wish(of, family, family, most, lambda: rows, cost, static)


@cache
def cost() -> StepCost:
    """Step costs of a shipped profile."""
    scenario = read(VALID).cells[0].scenario
    setup = prepare(scenario, scenario.policies[1], 0)
    return build_replica(simpy.Environment(), setup, scenario.policies[1].build(Bounds(8))).cost


def drafter(kind: str) -> Drafter:
    """A drafter of that kind that costs nothing."""
    return Drafter(kind=kind)  # type: ignore[arg-type]


def schema(name: str) -> dict[str, Any]:
    """One of our own schemas of what an engine takes."""
    return json.loads((SCHEMAS / f"{name}.json").read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def flags(text: str) -> dict[str, Any]:
    """Pasted flags as a shell splits them, {name without dashes: value}; environment settings left out."""
    words = shlex.split(text.replace("\\\n", " "))
    while words and "=" in words[0]:
        words.pop(0)
    found: dict[str, Any] = {}
    for word in words:
        if word.startswith("--"):
            found[word[2:]] = True
        else:
            found[list(found)[-1]] = word if word.startswith("<") else yaml.safe_load(word)
    return found
