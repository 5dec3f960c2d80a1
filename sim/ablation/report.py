"""An ablation as tables and sentences for a terminal, and as plain data. Nothing is printed here."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from sim import __version__
from sim.ablation.shares import SHOWN, Ablation, PolicyAblation, Share, Shares
from sim.ablation.variants import AS_IT_STANDS
from sim.explain.table import value_text
from sim.results.compare import Difference
from sim.results.names import METRICS
from sim.results.terminal import number
from sim.results.words import percent

SCHEMA: Final = "leadline.ablation/1"
_STYLES: Final = {"better": "green", "worse": "red"}


def tables(ablation: Ablation) -> RenderableType:
    """One table per load and policy: what each mechanism is worth in every metric, then what that means."""
    parts = [Padding(_table(entry, ablation), (0, 0, 1, 0)) for entry in ablation.entries]
    return Group(*parts, Text(footnote(ablation), style="dim"))


def footnote(ablation: Ablation) -> str:
    """How to read the table: direction, seeds, interval, and what counts as no difference."""
    how = (
        f"Each row is the engine as it stands against the same with this mechanism as in {ablation.against}: "
        "+ says that the mechanism makes the figure larger; in brackets its share of all together"
    )
    if len(ablation.seeds) < 2:
        return f"{how}. One seed, so no interval: chance is not ruled out."
    noise = f"paired over {len(ablation.seeds)} seeds, ± 95 % interval; what is inside it is no difference"
    margin = (
        f", as is what is under {100 * ablation.error:.1f} % (the profile's error)" if ablation.error else ""
    )
    return f"{how}; {noise}{margin}."


def _table(entry: PolicyAblation, ablation: Ablation) -> Table:
    title = f"{entry.policy} at {entry.load}: {entry.preset} against {ablation.against}"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("mechanism", no_wrap=True)
    table.add_column("stands → reference")
    for metric in SHOWN:
        table.add_column(f"{METRICS[metric].label}\n{METRICS[metric].unit}", justify="right", no_wrap=True)
    table.add_row(AS_IT_STANDS, "", *(_level(entry, metric) for metric in SHOWN), style="bold")
    if not entry.changes:
        table.add_row(f"no mechanism differs from {ablation.against}", "", *("" for _ in SHOWN))
        return table
    columns = [entry.shares(metric) for metric in SHOWN]
    for i, change in enumerate(entry.changes):
        values = f"{value_text(change.stands)} → {value_text(change.reference)}"
        table.add_row(change.switch, values, *(_cell(each.alone[i]) for each in columns))
    table.add_section()
    table.add_row("all together", "", *(_text(each.together) for each in columns), style="bold")
    if len(entry.changes) > 1:
        table.add_row("beyond the sum of each", "", *(_cell(each.rest) for each in columns))
    return table


def _level(entry: PolicyAblation, metric: str) -> str:
    if entry.unstable(AS_IT_STANDS):
        return "unstable"
    values = [value for value in entry.values(AS_IT_STANDS, metric) if not math.isnan(value)]
    return number(sum(values) / len(values)) if values else "-"


def _cell(share: Share) -> Text:
    """A mechanism's difference, and its share of the whole where both are differences."""
    text = _text(share.difference)
    counts = share.difference is not None and share.difference.verdict not in ("no difference", "no data")
    if counts and not math.isnan(share.part):
        text.append(f" ({100 * share.part:.0f} %)", style="dim")
    return text


def _text(found: Difference | None) -> Text:
    if found is None:
        return Text("unstable", style="dim")
    if found.mean == 0:
        return Text("none", style="dim")
    if found.verdict == "no difference" and not math.isnan(found.ratio):
        return Text(f"no difference ({100 * (found.ratio - 1):+.1f} %)", style="dim")
    if found.verdict in ("no difference", "no data"):
        return Text(found.verdict, style="dim")
    return Text(percent(found), style=_STYLES.get(found.verdict, ""))


def data(ablation: Ablation) -> dict[str, Any]:
    """The ablation as plain data, the content of ``ablation.json``."""
    return {
        "schema": SCHEMA,
        "leadline": __version__,
        "scenario": ablation.scenario,
        "against": ablation.against,
        "seeds": list(ablation.seeds),
        "error": ablation.error,
        "entries": [_entry(entry) for entry in ablation.entries],
    }


def _entry(entry: PolicyAblation) -> dict[str, Any]:
    return {
        "load": entry.load,
        "policy": entry.policy,
        "preset": entry.preset,
        "changes": [
            {"switch": each.switch, "stands": each.stands, "reference": each.reference}
            for each in entry.changes
        ],
        "unstable": [variant for variant in entry.runs if entry.unstable(variant)],
        "metrics": {metric: _metric(entry, entry.shares(metric)) for metric in SHOWN},
    }


def _metric(entry: PolicyAblation, shares: Shares) -> dict[str, Any]:
    return {
        "values": {variant: entry.values(variant, shares.metric) for variant in entry.runs},
        "together": _difference(shares.together),
        "alone": [{"switch": each.switch, **_share(each)} for each in shares.alone],
        "rest": _share(shares.rest),
    }


def _share(share: Share) -> dict[str, Any]:
    return {"difference": _difference(share.difference), "part": share.part}


def _difference(found: Difference | None) -> dict[str, Any] | None:
    """A difference without its metric, which stands above it."""
    if found is None:
        return None
    return dict(_fields(found))


def _fields(found: Difference) -> Iterator[tuple[str, Any]]:
    for name in ("pairs", "mean", "half_width", "ratio", "ratio_half_width", "verdict"):
        yield name, getattr(found, name)
