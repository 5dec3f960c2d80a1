"""Values set at dotted paths of plain data: the cells of a sweep, and flags of the command line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sim.scenario.nodes import KeyPath
from sim.scenario.words import shown


def resolve(data: Any, dotted: str) -> KeyPath:
    """Path that a dotted name means; items of a list go by number, ``name`` or ``label``.

    Raises ``ValueError`` when the path leads through something that is neither list nor mapping.
    """
    path: KeyPath = ()
    for part in dotted.split("."):
        if isinstance(data, list):
            index = _index(data, part)
            path, data = (*path, index), data[index]
        elif isinstance(data, dict | None):
            path, data = (*path, part), (data or {}).get(part)
        else:
            at = ".".join(str(step) for step in path)
            raise ValueError(
                f"leads through {at}, which is {shown(data)}; write it as a mapping to vary parts of it"
            )
    return path


def _index(items: list[Any], part: str) -> int:
    names = [[item.get("name"), item.get("label")] if isinstance(item, dict) else [item] for item in items]
    for i, known in enumerate(names):
        if part in known:
            return i
    if not part.isdecimal() or int(part) >= len(items):
        raise ValueError(f"has no item {part!r}; the list holds items 0 to {len(items) - 1}")
    return int(part)


def with_value(data: Any, path: KeyPath, value: Any) -> Any:
    """A copy of the data with one value set; mappings on the way are made where missing."""
    if not path:
        return value
    key, *rest = path
    if isinstance(data, list) and isinstance(key, int):
        return [with_value(item, tuple(rest), value) if i == key else item for i, item in enumerate(data)]
    if data is not None and not isinstance(data, Mapping):
        return data  # no place for the value; what stands there is wrong, and is told
    inside = dict(data or {})
    inside[str(key)] = with_value(inside.get(str(key)), tuple(rest), value)
    return inside


def with_values(data: Any, values: Mapping[str, Any]) -> Any:
    """A copy of the data with the values set at their dotted paths; ``ValueError`` as ``resolve``."""
    for dotted, value in values.items():
        data = with_value(data, resolve(data, dotted), value)
    return data
