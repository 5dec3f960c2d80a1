"""The map as a picture: areas by winner with Vega-Lite; needs the ``report`` extra (Altair, vl-convert)."""

from __future__ import annotations

import importlib.util
import math
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from sim.files import write_whole
from sim.map.interpolate import enough, gain, reading
from sim.map.model import At, Axis, Map
from sim.report.styles import COLOURS, NEUTRAL
from sim.results.names import METRICS

FINE: Final = 48
"""Areas along each axis of the picture; what lies between simulated points is interpolated."""
_EVEN: Final = "#d4d8dd"
_UNSTABLE: Final = "#3a3f46"
_SIDE: Final = 340
FULL_GAIN: Final = 0.25
"""A gain from which an area is fully opaque."""


def available() -> bool:
    """Whether what draws pictures is installed."""
    return all(importlib.util.find_spec(name) is not None for name in ("altair", "vl_convert"))


def write(found: Map, out: Path) -> list[str]:
    """Write ``map.svg``, ``map.png`` and ``map.html`` into a folder; returns their names."""
    import vl_convert

    spec = chart(found).to_json()
    write_whole(out / "map.svg", vl_convert.vegalite_to_svg(spec))
    write_whole(out / "map.png", vl_convert.vegalite_to_png(spec, scale=2))
    write_whole(out / "map.html", vl_convert.vegalite_to_html(spec, bundle=True))
    return ["map.svg", "map.png", "map.html"]


def chart(found: Map) -> Any:
    """An Altair chart of a map with one or two axes: who wins, and which fixed depth is enough."""
    import altair

    rows, dots = areas(found), points(found)
    winner = _panel(altair, found, rows, dots, "winner", _winners(found, rows), "Which policy is best")
    depth = _panel(altair, found, rows, dots, "enough", _depths(found, rows), "Which fixed depth is enough")
    title = altair.TitleParams(
        f"{found.about['scenario']}, by {METRICS[found.metric].label}",
        subtitle=[
            f"Left: the stronger the colour, the more is gained (full at {100 * FULL_GAIN:.0f} %). "
            f"Pale grey: {found.baseline} is even with the best. Of others that are "
            "even, the one that is so at most points.",
            "Right: the smallest depth no worse than the best. Dots were simulated, the rest lies between.",
        ],
        anchor="start",
        subtitlePadding=6,
    )
    both = altair.hconcat(winner, depth).resolve_scale(color="independent")
    return both.properties(title=title, padding=12, background="white")


def _panel(
    altair: Any,
    found: Map,
    rows: list[dict[str, Any]],
    dots: list[dict[str, Any]],
    key: str,
    colours: dict[str, str],
    title: str,
) -> Any:
    """Small rectangles in the colour of ``key``, and the simulated points on them."""
    x, y = (
        _scale(altair, "x", found.axes[0]),
        _scale(altair, "y", found.axes[1] if len(found.axes) > 1 else None),
    )
    scale = altair.Scale(domain=list(colours), range=list(colours.values()))
    colour = altair.Color(
        f"{key}:N", scale=scale, title=None, sort=list(colours), legend=altair.Legend(labelLimit=220)
    )
    opacity = altair.Opacity("stake:Q", scale=None, legend=None) if key == "winner" else altair.value(1)
    base = altair.Chart(altair.Data(values=rows), title=altair.TitleParams(title, anchor="start"))
    tips = [altair.Tooltip(f"{name}:N") for name in ("winner", "enough")]
    fields = {
        "x": x,
        "x2": "x2:Q",
        "y": y,
        "y2": "y2:Q",
        "color": colour,
        "opacity": opacity,
        "tooltip": tips,
    }
    area = base.mark_rect(strokeWidth=0).encode(**fields)
    told = [altair.Tooltip(f"{name}:N") for name in ("best", "even", "margin")]
    dot = altair.Chart(altair.Data(values=dots)).mark_circle(color="black", size=14, opacity=0.7)
    return (area + dot.encode(x="x:Q", y="y:Q", tooltip=told)).properties(width=_SIDE, height=_SIDE)


def _scale(altair: Any, channel: str, axis: Axis | None) -> Any:
    """The channel of an axis, logarithmic where the axis is; a map of one axis has no second."""
    kind = altair.X if channel == "x" else altair.Y
    if axis is None:
        return kind("y:Q", axis=None, scale=altair.Scale(domain=[0, 1]))
    ends = [axis.values[0], axis.values[-1]]
    form = {"share": "%", "": ".2f", "/s": ".3~g"}.get(axis.unit, ",d")
    ticks = altair.Axis(format=form, values=list(axis.values), grid=False)
    scale = altair.Scale(type="log" if axis.log else "linear", domain=ends, nice=False, zero=False)
    return kind(f"{channel}:Q", title=axis.title, axis=ticks, scale=scale)


def _winners(found: Map, rows: list[dict[str, Any]]) -> dict[str, str]:
    """Colour by winner, fixed depths in blues; only those that win somewhere."""
    fixed = {label: depth for depth, label in found.depths.items()}
    others = [label for label in found.policies if label not in fixed]
    colours = {label: _blue(depth / max(found.depths)) for label, depth in fixed.items() if depth}
    colours |= {label: COLOURS[1 + i % (len(COLOURS) - 1)] for i, label in enumerate(others)}
    colours[found.baseline] = NEUTRAL
    colours |= {_even_text(found): _EVEN, "all unstable": _UNSTABLE}
    seen = {row["winner"] for row in rows}
    return {label: colour for label, colour in colours.items() if label in seen}


def _depths(found: Map, rows: list[dict[str, Any]]) -> dict[str, str]:
    """Colour by depth, pale for shallow."""
    seen = {row["enough"] for row in rows}
    most = max(found.depths) or 1
    colours = {str(depth): _blue(depth / most) if depth else _EVEN for depth in found.depths}
    return {name: colour for name, colour in (colours | {"unstable": _UNSTABLE}).items() if name in seen}


def _blue(share: float) -> str:
    """From pale to dark blue."""
    pale, dark = (0xBF, 0xD9, 0xF2), (0x0A, 0x3D, 0x7A)
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in zip(pale, dark, strict=True))


def areas(found: Map) -> list[dict[str, Any]]:
    """Rectangles over the map with what wins inside; equal ones side by side are one."""
    sides = [_sides(axis) for axis in found.axes]
    down = sides[1] if len(sides) > 1 else [(0.0, 1.0, math.nan)]
    rows: list[dict[str, Any]] = []
    for y, y2, there in down:
        line: list[dict[str, Any]] = []
        for x, x2, here in sides[0]:
            area = _area(found, (here,) if math.isnan(there) else (here, there))
            if line and all(line[-1][name] == value for name, value in area.items()):
                line[-1]["x2"] = x2
            else:
                line.append({"x": x, "x2": x2, "y": y, "y2": y2, **area})
        rows += line
    return rows


def points(found: Map) -> list[dict[str, Any]]:
    """Where was simulated, with the verdict there."""
    return [
        {
            "x": point.at[0],
            "y": point.at[1] if len(point.at) > 1 else 0.5,
            "best": point.policy.best or "all unstable",
            "even": ", ".join(point.policy.even),
            "margin": None if math.isnan(point.policy.margin) else round(point.policy.margin, 4),
        }
        for point in found.points
    ]


def _sides(axis: Axis) -> list[tuple[float, float, float]]:
    """Edges and middle of every small interval of an axis."""
    low, high = axis.place(axis.values[0]), axis.place(axis.values[-1])
    edges = [low + (high - low) * i / FINE for i in range(FINE + 1)]
    back = math.exp if axis.log else float
    return [(back(a), back(b), back((a + b) / 2)) for a, b in pairwise(edges)]


def _area(found: Map, at: At) -> dict[str, Any]:
    seen = reading(found, at)
    depth = enough(found, seen)
    if seen.best is None:
        return {"winner": "all unstable", "enough": "unstable", "stake": 1.0}
    even = found.baseline in seen.even and len(seen.even) > 1
    gained = gain(found, seen)
    return {
        "winner": _even_text(found) if even else found.shown(seen.even),
        "enough": "unstable" if depth is None else str(depth),
        "stake": 1.0
        if even or math.isnan(gained)
        else round(0.3 + 0.7 * round(min(1.0, gained / FULL_GAIN), 1), 2),
    }


def _even_text(found: Map) -> str:
    return f"even with {found.baseline}"
