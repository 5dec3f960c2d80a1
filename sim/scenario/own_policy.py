"""Whether a user's own policy can be found, without running a line of it."""

from __future__ import annotations

import ast
import sys
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from sim.policies.config import PolicyConfig
from sim.policies.custom import CustomConfig
from sim.scenario.words import did_you_mean


def own_policy_problem(policy: PolicyConfig, folder: Path) -> str | None:
    """What is wrong with the name of a ``module:Class``, if anything can be seen from outside."""
    if not isinstance(policy, CustomConfig):
        return None
    module, _, name = policy.policy.partition(":")
    spec = _spec(policy, folder)
    if spec is None:
        return (
            f"there is no module {module!r} in {policy.search!r} or the Python path; set search to its folder"
        )
    source = _source(spec)
    if source is None:
        return None
    try:
        names = _top_level(source.read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError) as error:
        return f"module {module!r} cannot be read ({error}); mend it"
    if name in names or "*" in names:
        return None
    return f"module {module!r} has no {name!r}{did_you_mean(name, names)}"


def own_policy_file(policy: CustomConfig, folder: Path) -> Path | None:
    """The module's source, if it has any and can be found."""
    spec = _spec(policy, folder)
    return None if spec is None else _source(spec)


def _spec(policy: CustomConfig, folder: Path) -> ModuleSpec | None:
    where = [str(folder / policy.search), *sys.path]
    return _find(policy.policy.partition(":")[0].split("."), where)


def _source(spec: ModuleSpec) -> Path | None:
    return Path(spec.origin) if spec.origin is not None and spec.origin.endswith(".py") else None


def _find(parts: list[str], where: list[str]) -> ModuleSpec | None:
    """The module's specification, found from the file system alone."""
    spec = None
    for depth in range(1, len(parts) + 1):
        spec = PathFinder.find_spec(".".join(parts[:depth]), where)
        if spec is None:
            return None
        where = list(spec.submodule_search_locations or ())
    return spec


def _top_level(source: str) -> list[str]:
    """Names that a module binds at its top level; ``*`` when it imports everything of another."""
    names: list[str] = []
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            names.append(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names += [alias.asname or alias.name for alias in node.names]
        elif isinstance(node, ast.Assign):
            names += [target.id for target in node.targets if isinstance(target, ast.Name)]
    return names
