"""docs/schema.md: every key of a scenario file, from its JSON Schema.

``python -m tests.docs.schema`` writes the page; a test keeps it true.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sim.scenario.schema import scenario_schema
from tests.docs.blocks import table

PAGE = Path(__file__).resolve().parents[2] / "docs" / "schema.md"
MANY = 10
"""Alternatives beyond this are not listed: those of `policies` fill a screen."""
HEAD = """# Scenario schema

Every key of a scenario file, as `leadline schema` prints it for editors. How the parts work together:
[scenarios](scenarios.md), [workloads](workloads.md), [acceptance](acceptance.md), [policies](policies.md).
`python -m tests.docs.schema` writes this page.
"""


def page() -> str:
    """The page made anew: the file itself, then each of its parts by name."""
    schema = scenario_schema()
    parts = [
        _section("Scenario", schema),
        *(_section(name, part) for name, part in sorted(schema["$defs"].items())),
    ]
    return "\n\n".join([HEAD.rstrip(), *parts]) + "\n"


def _section(name: str, part: dict[str, Any]) -> str:
    needed = part.get("required", [])
    rows = [
        (f"`{key}`", _about(field), _type(field), _default(field, key in needed))
        for key, field in part.get("properties", {}).items()
    ]
    lines = [f"## {name}", " ".join(part.get("description", "").replace("``", "`").split())]
    lines += [table(("key", "what it is", "value", "default"), rows)] if rows else [_type(part)]
    return "\n\n".join(line for line in lines if line)


def _about(field: dict[str, Any]) -> str:
    bounds = [
        f"{words} {field[key]}"
        for key, words in (
            ("minimum", "at least"),
            ("exclusiveMinimum", "above"),
            ("maximum", "at most"),
            ("exclusiveMaximum", "below"),
        )
        if key in field
    ]
    return "; ".join(filter(None, [field.get("description", "").replace("``", "`"), ", ".join(bounds)]))


def _default(field: dict[str, Any], needed: bool) -> str:
    if needed:
        return "needed"
    default = field.get("default")
    return "" if default is None or default == "" else f"`{json.dumps(default)}`"


def _type(field: dict[str, Any]) -> str:
    """What may stand there, in words and links."""
    if "$ref" in field:
        name = field["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "const" in field:
        return f"`{json.dumps(field['const']).strip(chr(34))}`"
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    several = field.get("anyOf") or field.get("oneOf") or field.get("allOf")
    if several and len(several) > MANY:
        return "a name, or one of the parts below"
    if several:
        return " or ".join(dict.fromkeys(_type(each) for each in several if each.get("type") != "null"))
    return _plain(field)


def _plain(field: dict[str, Any]) -> str:
    kind = field.get("type", "any")
    if kind == "array":
        inner = field.get("items") or (field.get("prefixItems") or [{}])[0]
        return f"list of {_type(inner)}"
    if kind == "object":
        inner = field.get("additionalProperties")
        return f"mapping of {_type(inner)}" if isinstance(inner, dict) and inner else "mapping"
    example = (field.get("examples") or [""])[-1]
    return f"{kind} such as `{example}`" if example else str(kind)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
