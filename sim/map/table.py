"""The map as text: a grid of winners for two axes, a list of points for others, and Markdown."""

from __future__ import annotations

import math
from collections.abc import Callable

from rich.console import RenderableType
from rich.table import Table

from sim.map.model import Axis, Map, Point
from sim.results.names import METRICS

Cell = Callable[[Map, Point], str]


def tables(found: Map) -> list[RenderableType]:
    """The best policy and the best fixed depth, at the coarse points of the first two axes."""
    titles = (
        (f"best policy by {METRICS[found.metric].label}", policy_text),
        ("best fixed depth", depth_text),
    )
    return [_table(title + _elsewhere(found), *grid(found, text)) for title, text in titles]


def markdown(found: Map) -> str:
    """The same tables as Markdown, every point that was simulated, and what the numbers stand on."""
    parts = [f"# Crossover map: {found.about['scenario']}", "\n".join(summary(found))]
    parts += [f"## Best policy{_elsewhere(found)}", _markdown(*grid(found, policy_text))]
    parts += [f"## Best fixed depth{_elsewhere(found)}", _markdown(*grid(found, depth_text))]
    parts += ["## Every point", _markdown(*rows_of_points(found))]
    return "\n\n".join(parts) + "\n"


def summary(found: Map) -> list[str]:
    """What a map stands on, in a few lines."""
    about = found.about
    label = METRICS[found.metric].label
    lines = [
        f"{len(found.points)} points, {len(about['seeds'])} seeds each, decided by {label}; engine "
        f"{about['engine']}, profile {about['profile']} ({about['profile_kind']}), "
        f"drafter {about['drafter']}.",
        f"Gains are over {found.baseline}, or over the next best where "
        f"{found.baseline} is best itself. `{found.baseline} =`: {found.baseline} and others are even; "
        f"{found.baseline} is shown wherever that is so. Of other policies that are even, the one is "
        "shown that is so at most points, with its own gain. In brackets: depths that are even.",
    ]
    if found.error:
        lines.append(f"Differences under the profile's error ({100 * found.error:.0f} %) are even.")
    return lines


def policy_text(found: Map, point: Point) -> str:
    """``goodput +12 %``; ``off =`` where the baseline is even with others."""
    choice = point.policy
    if choice.best is None:
        return "all unstable"
    if found.baseline in choice.even and len(choice.even) > 1:
        return f"{found.baseline} ="
    name = found.shown(choice.even) or choice.best
    gained = choice.margin if name == choice.best else _gain(found, point, name)
    return name if math.isnan(gained) else f"{name} {100 * gained:+.0f} %"


def _gain(found: Map, point: Point, label: str) -> float:
    """What a policy gains over the baseline, as a share; NaN where either is unstable."""
    base = point.policies[found.baseline].mean
    ratio = point.policies[label].mean / base if base else math.nan
    return 1 - ratio if METRICS[found.metric].better == "lower" else ratio - 1


def depth_text(found: Map, point: Point) -> str:
    """The best depth, or the range of depths that are even with it."""
    depths = sorted(depth for depth, label in found.depths.items() if label in point.depth.even)
    if not depths:
        return "-"
    best = found.depth_of(point.depth.best)
    return f"{best}" if len(depths) == 1 else f"{best} ({', '.join(map(str, depths))})"


def grid(found: Map, text: Cell) -> tuple[list[str], list[list[str]]]:
    """Header and rows: the second axis runs down, the first across, at the coarse values.

    Further axes stand at their middle value. A single axis has one row, ``best``.
    """
    rest = tuple(_middle(axis) for axis in found.axes[2:])
    at = {point.at: point for point in found.points}
    across = found.axes[0]
    down = next(iter(found.axes[1:]), None)
    header = [(down or across).name, *(across.text(value) for value in across.values)]
    rows = []
    for value in reversed(down.values) if down else (None,):
        here = [at[(x,) if value is None else (x, value, *rest)] for x in across.values]
        name = "best" if down is None or value is None else down.text(value)
        rows.append([name, *(text(found, point) for point in here)])
    return header, rows


def _middle(axis: Axis) -> float:
    return axis.values[len(axis.values) // 2]


def _elsewhere(found: Map) -> str:
    """Where the axes stand that a table has no room for."""
    rest = [f"{axis.name} {axis.text(_middle(axis))}" for axis in found.axes[2:]]
    return f", at {', '.join(rest)}" if rest else ""


def rows_of_points(found: Map) -> tuple[list[str], list[list[str]]]:
    """Header and one row per simulated point, in order of place."""
    header = [*(axis.title for axis in found.axes), "best", "margin", "even", "best depth"]
    rows = [_row(found.axes, found, point) for point in sorted(found.points, key=lambda point: point.at)]
    return header, rows


def _row(axes: tuple[Axis, ...], found: Map, point: Point) -> list[str]:
    choice = point.policy
    place = [axis.text(value) for axis, value in zip(axes, point.at, strict=True)]
    others = ", ".join(label for label in choice.even if label != choice.best)
    return [*place, choice.best or "all unstable", _margin(point), others or "-", depth_text(found, point)]


def _margin(point: Point) -> str:
    choice = point.policy
    if math.isnan(choice.margin):
        return "-"
    width = "" if math.isnan(choice.margin_half) else f" ± {100 * choice.margin_half:.1f}"
    return f"{100 * choice.margin:+.1f}{width} % over {choice.over}"


def _table(title: str, header: list[str], rows: list[list[str]]) -> Table:
    table = Table(title=title, title_justify="left", header_style="bold")
    for i, name in enumerate(header):
        table.add_column(name, justify="left" if i else "right")
    for row in rows:
        table.add_row(*row)
    return table


def _markdown(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)
