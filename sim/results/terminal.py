"""The comparison as tables for a terminal: one per load, policies in rows, then the verdicts.

Nothing is printed here; ``render`` gives a rich renderable.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from sim.results.compare import Best, Cell, Comparison, Difference, PolicyResult, against, best_policy
from sim.results.names import METRICS
from sim.results.words import footnote, percent, verdict

MAX_NAME: Final = 28
_GAP: Final = 2
_NO_BREAK: Final = "\N{NO-BREAK SPACE}"
_STYLES: Final = {"better": "green", "worse": "red", "no difference": "dim", "no data": "dim"}


def number(value: float) -> str:
    """Three significant digits or all integer ones: ``0.123``, ``12.3``, ``12,345``; ``-`` for NaN."""
    if math.isnan(value):
        return "-"
    if value == 0:
        return "0"
    magnitude = math.floor(math.log10(abs(float(f"{value:.2e}"))))
    return f"{value:,.{min(3, max(0, 2 - magnitude))}f}"


def share(value: float) -> str:
    """A share in percent."""
    return "-" if math.isnan(value) else f"{100 * value:.0f} %"


def engineering(value: float) -> str:
    """Three digits and a decimal prefix: ``54.2 G``."""
    if math.isnan(value):
        return "-"
    power = min(5, max(0, int(math.log10(value) // 3))) if value > 0 else 0
    return f"{number(value / 1000**power)} {' kMGTP'[power]}".rstrip()


@dataclass(frozen=True)
class _Column:
    """One column: its two-line heading, its metric, how it is written, and where it appears."""

    heading: str
    metric: str
    write: Callable[[float], str] = number
    narrow: bool = False

    def cells(self, policies: Iterable[PolicyResult]) -> list[str]:
        """Means over seeds; an unstable policy has none."""
        return ["" if p.unstable else self.write(p.mean(self.metric)) for p in policies]

    def width(self, policies: Iterable[PolicyResult]) -> int:
        """Characters it takes, with the gap before it."""
        return _GAP + max(map(len, (*self.heading.split("\n"), *self.cells(policies))))


_COLUMNS: Final = (
    _Column("TTFT\np50", "ttft_p50_ms"),
    _Column("TTFT\np99", "ttft_p99_ms", narrow=True),
    _Column("TPOT\nmean", "tpot_mean_ms", narrow=True),
    _Column("TPOT\np99", "tpot_p99_ms"),
    _Column("ITL\nmean", "itl_mean_ms"),
    _Column("E2EL\nmean", "e2el_mean_ms"),
    _Column("E2EL\np99", "e2el_p99_ms"),
    _Column("step\nmean", "step_mean_ms"),
    _Column("output\ntok/s", "output_tokens_per_s", narrow=True),
    _Column("good\nreq/s", "goodput_per_s", narrow=True),
    _Column("accept\nlength", "acceptance_length", narrow=True),
    _Column("\ndepth", "depth_mean", narrow=True),
    _Column("\nbatch", "batch_mean", narrow=True),
    _Column("FLOPs\n/token", "flops_per_token", engineering),
    _Column("bytes\n/token", "bytes_per_token", engineering),
    _Column("drafts\nwasted", "draft_waste_share", share),
)


def render(comparison: Comparison, wide: bool = False, width: int = 100) -> RenderableType:
    """Tables and verdicts for a terminal ``width`` characters wide.

    ``wide`` shows every column; what does not fit beside one another goes into a further table.
    """
    return Group(tables(comparison, wide, width), verdicts(comparison))


def tables(comparison: Comparison, wide: bool = False, width: int = 100) -> RenderableType:
    """One table of policies per load, or several where the columns do not fit."""
    found = (table for cell in comparison.cells for table in _tables(cell, comparison, wide, width))
    return Group(*(Padding(table, (0, 0, 1, 0)) for table in found))


def verdicts(comparison: Comparison) -> RenderableType:
    """What to do at each load, in words, and what the differences are."""
    lines = [Text(verdict(cell, comparison)) for cell in comparison.cells]
    return Group(*lines, Text(footnote(comparison), style="dim"))


def _tables(cell: Cell, comparison: Comparison, wide: bool, width: int) -> Iterator[Table]:
    names, deltas = _names(cell, comparison), _deltas(cell, comparison)
    heading = f"Δ {METRICS[comparison.metric].label}\nagainst {comparison.baseline}"
    name_width = min(MAX_NAME, max(map(len, names)))
    taken = (
        name_width
        + _GAP
        + max(len(line) for line in (*heading.split("\n"), *(delta.plain for delta in deltas)))
    )
    columns = [c for c in _COLUMNS if (wide or c.narrow) and _has_data(cell, c)]
    for group in _groups(columns, cell.policies, width - taken):
        table = _empty_table(f"load {cell.load} · latencies in ms")
        table.add_column("\n  policy", overflow="fold", min_width=name_width, max_width=MAX_NAME)
        for title in (heading, *(column.heading for column in group)):
            table.add_column(title, justify="right", no_wrap=True)
        cells = [column.cells(cell.policies) for column in group]
        for row in zip(names, deltas, *cells, strict=True):
            table.add_row(*row)
        yield table


def _has_data(cell: Cell, column: _Column) -> bool:
    """Whether any run has the metric: goodput needs an SLO, FLOPs a cost model."""
    return any(not math.isnan(run[column.metric]) for policy in cell.policies for run in policy.runs)


def _groups(columns: list[_Column], policies: tuple[PolicyResult, ...], room: int) -> Iterator[list[_Column]]:
    """Cut the columns into runs that fit side by side, at least one run, however narrow the room."""
    group: list[_Column] = []
    for column in columns:
        if group and sum(c.width(policies) for c in (*group, column)) > room:
            yield group
            group = []
        group.append(column)
    yield group


def _empty_table(title: str) -> Table:
    return Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, _GAP - 1, 0, 0),
    )


def _names(cell: Cell, comparison: Comparison) -> list[Text]:
    """Labels: the winner marked, those even with it, and clairvoyant bounds."""
    best = best_policy(cell, comparison.metric, comparison.error)
    return [_name(policy, best) for policy in cell.policies]


def _name(policy: PolicyResult, best: Best) -> Text:
    if policy.label == best.label:
        return Text(f"★{_NO_BREAK}{policy.label}", style="bold green")
    mark = "=" if policy.label in best.even else _NO_BREAK
    return Text(f"{mark}{_NO_BREAK}{policy.label}{' (bound)' if policy.bound else ''}")


def _deltas(cell: Cell, comparison: Comparison) -> list[Text]:
    """Paired difference of each policy from the baseline in the metric that decides."""
    differences = against(cell, comparison.baseline, comparison.metric, comparison.error)
    return [
        _delta(policy, difference, policy.label == comparison.baseline)
        for policy, difference in zip(cell.policies, differences, strict=True)
    ]


def _delta(policy: PolicyResult, difference: Difference | None, is_baseline: bool) -> Text:
    if policy.unstable:
        return Text("unstable", style="bold red")
    if is_baseline or difference is None:
        return Text("baseline" if is_baseline else "-", style="dim")
    return Text(percent(difference), style=_STYLES.get(difference.verdict, ""))
