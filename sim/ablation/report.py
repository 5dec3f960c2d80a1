"""An ablation as tables for a terminal, as a report page, and as plain data. Nothing is printed here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from sim import __version__
from sim.ablation.shares import SHOWN, Ablation, PolicyAblation, Share, Shares
from sim.ablation.variants import AS_IT_STANDS, Change
from sim.ablation.words import counts, felt, footnote, level, part, sentence, unfelt, worth
from sim.explain.table import value_text
from sim.results.compare import Difference
from sim.results.names import METRICS

if TYPE_CHECKING:
    from sim.report.model import Report

SCHEMA: Final = "leadline.ablation/1"
DECIDING: Final = "tpot_mean_ms"
"""The metric that sentences are about."""
_STYLES: Final = {"better": "green", "worse": "red"}


def tables(ablation: Ablation) -> RenderableType:
    """One table per load and policy: the mechanisms that are felt, the others named; then in sentences.

    The tables fit 80 columns: the second line of a cell says what the mechanism's values are, its share of
    all together, or how large a difference is that does not count.
    """
    parts = [Padding(_block(entry, ablation), (0, 0, 1, 0)) for entry in ablation.entries]
    said = [Text(sentence(entry, ablation.against, DECIDING)) for entry in ablation.entries]
    return Group(*parts, *said, Text(footnote(ablation), style="dim"))


def page(ablation: Ablation) -> Report:
    """The same as a report, for ``sim.report.html`` and ``sim.report.markdown``."""
    from sim.report.model import Report

    return Report(
        title=f"{ablation.scenario}: what each mechanism is worth",
        description="",
        verdict=tuple(sentence(entry, ablation.against, DECIDING) for entry in ablation.entries),
        loads=(),
        basis=footnote(ablation).rstrip("."),
        warnings=(),
        policies=(),
        settings=(),
        charts=(),
        tables=tuple(_as_text(entry, ablation) for entry in ablation.entries),
        sources=(),
    )


def _title(entry: PolicyAblation, ablation: Ablation) -> str:
    return f"{entry.policy} at {entry.load}: {entry.preset} against {ablation.against}"


def _block(entry: PolicyAblation, ablation: Ablation) -> RenderableType:
    table, others = _table(entry, ablation), unfelt(entry)
    return Group(table, Text(others)) if others else table


def _table(entry: PolicyAblation, ablation: Ablation) -> Table:
    table = Table(title=_title(entry, ablation), title_justify="left", box=box.SIMPLE_HEAD, padding=0)
    table.add_column("mechanism", min_width=max(map(len, (AS_IT_STANDS, *felt(entry)))))
    for metric in SHOWN:
        head = f"{METRICS[metric].label}\n{METRICS[metric].unit}"
        table.add_column(head, justify="right", min_width=len("no difference"))
    table.add_row(AS_IT_STANDS, *(level(entry, metric) for metric in SHOWN), style="bold")
    if not entry.changes:
        table.add_row(f"no mechanism differs from {ablation.against}", *("" for _ in SHOWN))
        return table
    *alone, together, rest = _lines(entry)
    for name, values, shares in alone:
        table.add_row(Text(name).append(f"\n{values}", style="dim"), *map(_styled, shares))
    table.add_section()
    table.add_row(together[0], *map(_styled, together[2]), style="bold")
    if len(entry.changes) > 1:
        table.add_row(rest[0], *map(_styled, rest[2]))
    return table


def _lines(entry: PolicyAblation) -> list[tuple[str, str, list[Share]]]:
    """Name, values and shares by metric: of each mechanism felt, of all together, and of the rest."""
    found = [entry.shares(metric) for metric in SHOWN]
    place = {change.switch: i for i, change in enumerate(entry.changes)}
    alone = [
        (name, _values(entry.changes[place[name]]), [each.alone[place[name]] for each in found])
        for name in felt(entry)
    ]
    together = [Share("together", each.together, float("nan")) for each in found]
    return [
        *alone,
        ("all together", "", together),
        ("beyond the sum of each", "", [each.rest for each in found]),
    ]


def _values(change: Change) -> str:
    return f"{value_text(change.stands)} → {value_text(change.reference)}"


def _styled(share: Share) -> Text:
    """A mechanism's difference, and its share of the whole where both are differences."""
    found = share.difference
    style = _STYLES.get(found.verdict, "") if found is not None and counts(found) else "dim"
    figure, bracket, small = worth(found).partition(" (")
    below = f"({small}" if bracket else part(share).strip()
    return Text(figure, style=style).append(f"\n{below}" if below else "", style="dim")


def _as_text(entry: PolicyAblation, ablation: Ablation) -> Any:
    from sim.report.model import Table as TextTable

    heads = ("mechanism", "stands → reference", *(_head(metric) for metric in SHOWN))
    levels = (AS_IT_STANDS, "", *(level(entry, metric) for metric in SHOWN))
    lines = _lines(entry) if entry.changes else []
    rows = [
        (name, values, *(worth(s.difference) + part(s) for s in shares)) for name, values, shares in lines
    ]
    note = f"Rows below the first hold differences. {unfelt(entry)}".rstrip(". ")
    return TextTable(_title(entry, ablation), heads, (levels, *rows), note)


def _head(metric: str) -> str:
    name = METRICS[metric]
    return f"{name.label} ({name.unit})" if name.unit else name.label


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
