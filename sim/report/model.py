"""A report as plain data: sentences, tables and chart specifications, whatever it is written as."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]


@dataclass(frozen=True)
class Table:
    """A table of text; numbers stand to the right, the first column heads its row."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


@dataclass(frozen=True)
class Chart:
    """One Vega-Lite chart with the table that says the same in text.

    ``title`` is its finding or its question, ``alt`` what a reader who cannot see it is told.
    ``panels`` are drawn side by side as far as the page is wide enough; axes take ``gutter`` pixels beside
    each and ``margin`` pixels once.
    """

    key: str
    title: str
    alt: str
    spec: dict[str, Any]
    table: Table
    note: str = ""
    panels: int = 1
    gutter: int = 64
    margin: int = 0


@dataclass(frozen=True)
class PolicyStyle:
    """How one policy is drawn, the same in every chart."""

    label: str
    colour: str
    shape: str
    dash: tuple[int, ...]
    bound: bool


@dataclass(frozen=True)
class Source:
    """One thing that the numbers stand on: a profile, an acceptance source, the software."""

    title: str
    facts: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Report:
    """What a reader is told, in the order in which it is told.

    ``verdict`` is one sentence per range of loads, ``loads`` one per load. ``settings`` name what was
    swept beside the load; charts show one setting at a time.
    """

    title: str
    description: str
    verdict: tuple[str, ...]
    loads: tuple[str, ...]
    basis: str
    warnings: tuple[str, ...]
    policies: tuple[PolicyStyle, ...]
    settings: tuple[str, ...]
    charts: tuple[Chart, ...]
    tables: tuple[Table, ...]
    sources: tuple[Source, ...]
