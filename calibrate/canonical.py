"""JSON as profiles are written: the same bytes for the same data, one sample or curve axis a line."""

from __future__ import annotations

import json
from typing import Any

_LINE = 160
"""A value that fits in this many characters stands on one line; so does a list of numbers."""


def canonical(value: Any, indent: str = "") -> str:
    """JSON with one sample, or one whole curve axis, per line: readable and still small."""
    flat = json.dumps(value, allow_nan=False, ensure_ascii=False)
    if len(flat) <= _LINE or not isinstance(value, dict | list) or _is_numbers(value):
        return flat
    inner = indent + " "
    if isinstance(value, dict):
        items = [f"{json.dumps(key)}: {canonical(item, inner)}" for key, item in value.items()]
    else:
        items = [canonical(item, inner) for item in value]
    opening, closing = ("{", "}") if isinstance(value, dict) else ("[", "]")
    return f"{opening}\n{inner}" + f",\n{inner}".join(items) + f"\n{indent}{closing}"


def _is_numbers(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, int | float) for item in value)
