"""The tables of docs/engines.md: presets, what they differ in, and where each value was read.

``python -m tests.docs.engines`` writes the page again; a test keeps it true.
"""

from __future__ import annotations

from pathlib import Path

from sim.engine.presets import ENGINES
from sim.explain.table import NAMES, compared, preset_of, rows, value_text
from tests.docs.blocks import filled, table

PAGE = Path(__file__).resolve().parents[2] / "docs" / "engines.md"


def presets() -> str:
    """One line per preset: the engine, the version that was read, and what it is like."""
    engines = [(name, ENGINES[preset_of(name)]) for name in NAMES]
    return table(
        ("preset", "engine", "read in", "in a sentence"),
        [(f"`{name}`", each.engine, each.version or "-", each.about) for name, each in engines],
    )


def differences() -> str:
    """Every switch and limit in which presets differ."""
    about = {row.name: row.about for name in NAMES for row in rows(name)}
    lines = [(f"`{key}`", about[key], *map(value_text, values)) for key, values in compared()]
    return table(("`engine:`", "what it does", *(f"`{name}`" for name in NAMES)), lines)


def sources() -> str:
    """Per engine, every value with the place where it was read."""
    return "\n\n".join(_sources(name) for name in NAMES if ENGINES[preset_of(name)].version)


def _sources(name: str) -> str:
    engine = ENGINES[preset_of(name)]
    lines = [(f"`{row.name}`", value_text(row.value), row.source) for row in rows(name)]
    head = f"### `{name}`: {engine.engine} {engine.version}"
    return f"{head}\n\n" + table(("", "value", "read in"), lines)


def page() -> str:
    """The page with its tables made anew."""
    parts = {"presets": presets(), "differences": differences(), "sources": sources()}
    return filled(PAGE.read_text(encoding="utf-8"), parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
