"""The cells of a sweep, as plain data: every combination of the swept values.

A swept path is dotted (``workload.arrival.request_rate``, ``engine.max_num_seqs``); several
profiles count as one more swept path. The last path varies fastest.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from sim.scenario.nodes import Finding, KeyPath
from sim.scenario.overlay import resolve, with_value
from sim.scenario.shape import at

MAX_CELLS: Final = 1000
_FIXED: Final = ("name", "description", "policies", "profiles", "run", "sweep")
_SHORT: Final = {"max_concurrency": "c", "max_num_seqs": "seqs"}


@dataclass(frozen=True)
class Setting:
    """One swept value: where it goes (``target``), where it is written (``source``), and its name."""

    dotted: str
    target: KeyPath
    source: KeyPath
    value: Any
    label: str


Plan = tuple[Setting, ...]


def dimensions(data: dict[str, Any]) -> tuple[list[Plan], list[Finding]]:
    """One tuple of settings per swept path, and what is wrong with the ``sweep`` itself."""
    dims, findings = [], []
    written = data.get("sweep")
    sweep: dict[str, Any] = written if isinstance(written, dict) else {}
    for dotted, values in sweep.items():
        where: KeyPath = ("sweep", dotted)
        wrong = _wrong_path(data, dotted) or ("" if values else "is empty; list at least one value")
        if wrong:
            findings.append(Finding(where, wrong, at_key=True))
        elif isinstance(values, list | dict):
            plan = _settings(dotted, resolve(data, dotted), values, _name(dotted, sweep))
            findings += _twice(plan)
            dims.append(plan)
    profiles = _profile_settings(data)
    dims = [profiles, *dims] if profiles else dims
    count = math.prod(len(plan) for plan in dims)
    if count > MAX_CELLS:
        findings.append(
            Finding(("sweep",), f"makes {count} cells; at most {MAX_CELLS} can be compared", True)
        )
    return dims if count <= MAX_CELLS else [], findings


def _settings(dotted: str, target: KeyPath, values: list[Any] | dict[str, Any], name: str) -> Plan:
    """The values of one path: a list labels itself, a mapping gives each value its label."""
    where: KeyPath = ("sweep", dotted)
    if isinstance(values, dict):
        return tuple(Setting(dotted, target, (*where, key), value, key) for key, value in values.items())
    return tuple(
        Setting(dotted, target, (*where, i), value, _label(name, value)) for i, value in enumerate(values)
    )


def _wrong_path(data: dict[str, Any], dotted: str) -> str | None:
    root = dotted.partition(".")[0]
    if root == "policies":
        return "policies cannot vary, since every cell compares all of them; list each variant under policies"
    if root in _FIXED:
        return f"{root} cannot vary; sweep profile, drafter, acceptance, workload, engine or slo"
    try:
        resolve(data, dotted)
    except ValueError as error:
        return str(error)
    return None


def _profile_settings(data: dict[str, Any]) -> Plan:
    profiles = data.get("profiles")
    if not isinstance(profiles, dict) or data.get("profile") is not None:
        return ()
    return tuple(
        Setting("profile", ("profile",), ("profiles", label), name, label) for label, name in profiles.items()
    )


def _name(dotted: str, sweep: dict[str, Any]) -> str:
    """The path's last part, or all of it where two swept paths end alike."""
    last = dotted.rsplit(".", 1)[-1]
    alike = [other for other in sweep if other.rsplit(".", 1)[-1] == last]
    return _SHORT.get(last, last) if len(alike) == 1 else dotted


def _label(name: str, value: Any) -> str:
    """``4/s`` for a value that speaks for itself, ``k=3`` for one that does not."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return " ".join(
            str(inside) if isinstance(inside, str) else f"{key}={inside}" for key, inside in value.items()
        )
    return f"{name}={value}"


def _twice(plan: Plan) -> list[Finding]:
    labels = [setting.label for setting in plan]
    return [
        Finding(setting.source, f"{setting.label} is listed twice; list each value once")
        for i, setting in enumerate(plan)
        if setting.label in labels[:i]
    ]


def combinations(dims: list[Plan]) -> Iterator[Plan]:
    """One setting of every swept path, in order."""
    yield from itertools.product(*dims)


def cell_label(plan: Plan) -> str:
    """Name of one cell; ``base`` when nothing is swept."""
    return ", ".join(setting.label for setting in plan) or "base"


def apply(data: dict[str, Any], plan: Plan) -> dict[str, Any]:
    """The data of one cell, without its ``sweep``."""
    cell: Any = {key: value for key, value in data.items() if key != "sweep"}
    if any(setting.source[0] == "profiles" for setting in plan):
        del cell["profiles"]
    for setting in plan:
        cell = with_value(cell, setting.target, setting.value)
    return dict(cell)


def fill(data: dict[str, Any], dims: list[Plan]) -> tuple[dict[str, Any], Plan]:
    """The data with the first value of every swept path that is not written elsewhere."""
    absent = tuple(
        plan[0] for plan in dims if plan[0].source[0] == "sweep" and at(data, plan[0].target) is None
    )
    filled: Any = data
    for setting in absent:
        filled = with_value(filled, setting.target, setting.value)
    return dict(filled), absent


def relocate(finding: Finding, plan: Plan) -> Finding | None:
    """The finding at the swept value that it is about, or ``None`` if it is about none of them."""
    name = finding.path if finding.name is None else finding.name
    for setting in plan:
        depth = len(setting.target)
        if finding.at_key and finding.name is None and setting.target[: len(finding.path)] == finding.path:
            return finding._replace(path=setting.source[:2])  # a key that only the sweep has
        if finding.path[:depth] == setting.target:
            shown = None if finding.name is None else (*setting.source, *name[depth:])
            return Finding((*setting.source, *finding.path[depth:]), finding.message, finding.at_key, shown)
    return None
