"""The report as Markdown and as JSON."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict
from typing import Final

from sim.report.model import Report, Table
from sim.results.store import json_text

SCHEMA: Final = "leadline.report/1"


def json(report: Report) -> str:
    """All of it as canonical JSON, schema ``leadline.report/1``."""
    return json_text({"schema": SCHEMA, **asdict(report)})


def markdown(report: Report) -> str:
    """Verdict, warnings, tables and provenance; of every chart the table that says the same."""
    return "\n".join(_lines(report)).rstrip("\n") + "\n"


def _lines(report: Report) -> Iterator[str]:
    yield from (f"# {text(report.title)}", "")
    if report.description:
        yield from (text(report.description), "")
    yield from ("## Verdict", "", *_list(report.verdict), text(report.basis), "")
    if report.warnings:
        yield from ("## Before you trust this", "", *_list(report.warnings))
    yield from ("## Load by load", "", *_list(report.loads))
    for table in report.tables:
        yield from _table(table)
    for chart in report.charts:
        yield from _table(chart.table, chart.note)
    yield from ("## What the numbers stand on", "")
    for source in report.sources:
        yield from (f"### {text(source.title)}", "", *_list(tuple(f"{k}: {v}" for k, v in source.facts)))


def _table(table: Table, note: str = "") -> Iterator[str]:
    yield from (f"## {text(table.title)}", "")
    yield "| " + " | ".join(map(text, table.columns)) + " |"
    yield "|---|" + "---:|" * (len(table.columns) - 1)
    for row in table.rows:
        yield "| " + " | ".join(map(text, row)) + " |"
    yield ""
    if note or table.note:
        yield from (text(note or table.note), "")


def _list(items: tuple[str, ...]) -> Iterator[str]:
    yield from (f"- {text(item)}" for item in items)
    yield ""


def text(value: str) -> str:
    """``value`` on one line, with everything escaped that Markdown or HTML would read as its own."""
    flat = " ".join(value.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_\[\]|#~])", r"\\\1", flat)
