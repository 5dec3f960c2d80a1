"""Presets as tables for a terminal. Nothing is printed here."""

from __future__ import annotations

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from sim.engine.presets import ENGINES
from sim.explain.table import NAMES, compared, differences, preset_of, rows, value_text

_SHORT = {"vllm_v1_adaptive": "vllm_v1\n_adaptive"}


def preset(name: str) -> RenderableType:
    """One preset: every value with what it does and where it was read."""
    engine = ENGINES[preset_of(name)]
    table = _table("switch or limit", "value", "what it does", "source")
    kind = "switch"
    for row in rows(name):
        if row.kind != kind:
            table.add_section()
            kind = row.kind
        table.add_row(row.name, value_text(row.value), row.about, Text(row.source, style="dim"))
    return Group(Text(f"{name}: {_engine(name)}; {engine.about}"), table)


def against(name: str, other: str) -> RenderableType:
    """What two presets set differently."""
    found = differences(name, other)
    if not found:
        return Text(f"{name} and {other} set everything alike")
    table = _table("switch or limit", name, other, "what it does", "sources")
    for each in found:
        sources = Text("\n".join(dict.fromkeys(each.sources)), style="dim")
        table.add_row(each.name, *map(value_text, each.values), each.about, sources)
    return Group(Text(f"{name}: {_engine(name)}. {other}: {_engine(other)}."), table)


def listing() -> RenderableType:
    """All presets, and the switches and limits in which they differ."""
    names = _table("preset", "engine", "in a sentence")
    for name in NAMES:
        names.add_row(name, _engine(name), ENGINES[name].about)
    table = _table("differs", *(_SHORT.get(name, name) for name in NAMES))
    for key, values in compared():
        table.add_row(key, *map(value_text, values))
    return Group(names, table, Text("leadline explain PRESET has the sources", style="dim"))


def _engine(name: str) -> str:
    engine = ENGINES[preset_of(name)]
    return f"{engine.engine} {engine.version}".strip()


def _table(*heads: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for i, head in enumerate(heads):
        table.add_column(head, no_wrap=i == 0, overflow="fold")
    return table
