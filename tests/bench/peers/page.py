"""The page: what was measured, in words and tables."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ABOUT = Path(__file__).parent / "about.md"


def page(found: Mapping[str, Any]) -> str:
    """Markdown of everything that was measured in one run."""
    lines = [ABOUT.read_text().rstrip(), "", f"Machine: {found['machine']}. Date: {found['date']}. "]
    lines[-1] += f"leadline at {found['commit']}. {found['repeats']} runs of each, in turn; medians."
    for case in found["cases"]:
        lines += ["", f"## {case['title']}", "", case["about"], "", *_case(case)]
    return "\n".join(lines) + "\n"


def _case(case: Mapping[str, Any]) -> list[str]:
    lines = []
    if case["absent"]:
        lines += [f"{case['title']} was not measured: {case['absent']}.", ""]
    lines += [
        "| | wall s (least to most) | CPU s | peak MB | requests/s | leadline/peer | simulated s | steps |",
        "|---|---|---|---|---|---|---|---|",
        *(_line(row) for row in case["sides"]),
    ]
    lines += ["", *(f"- {said}" for row in case["sides"] for said in _said(row))]
    return lines


def _line(row: Mapping[str, Any]) -> str:
    """A row; that of a loop has the seconds of the loop."""
    alone = bool(row["more"])
    seconds = row["loop_s"] if alone else row["wall_s"]
    rate = row["loop_requests_per_s"] if alone else row["requests_per_s"]
    ratios = row.get("times_as_fast")
    cells = [
        row["name"],
        f"{statistics.median(seconds):.2f} ({min(seconds):.2f} to {max(seconds):.2f})",
        "" if alone else f"{statistics.median(row['cpu_s']):.2f}",
        "" if alone else f"{row['peak_mb']:.0f}",
        f"{rate:,.0f}",
        f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})" if ratios else "",
        "" if row["simulated_s"] is None else f"{row['simulated_s']:,.0f}",
        "" if row["steps"] is None else f"{row['steps']:,}",
    ]
    return f"| {' | '.join(cells)} |"


def _said(row: Mapping[str, Any]) -> list[str]:
    said = [f"{row['name']} ({row['version']}): `{row['command']}`."]
    if row["more"]:
        first, again = row["more"]["first_s"], row["more"]["again_s"]
        said[0] += (
            f" The first run of 100 requests in a process took {first:.2f} s, the second {again:.2f} s: "
            "the difference is compiling or loading, once a process, and is not in its seconds."
        )
    elif row["loop_s"]:
        rate = row["loop_requests_per_s"]
        told = f"{statistics.median(row['loop_s']):.2f} s" + (f", {rate:,.0f} requests/s" if rate else "")
        said[0] += f" Its own loop, by its output: {told}."
    said[0] += f" Its first run, which does not count, took {row['first_wall_s']:.1f} s."
    if row["notes"]:
        said[0] += f" Note: {row['notes']}."
    return said
