"""The explorer: a page where a person drags load, acceptance and lengths and sees what wins and why.

Plain HTML and script, no network. ``fragment`` goes into a report, ``page`` stands alone. Colours are
the CSS variables ``--fg --bg --muted --accent --line``.
"""

from __future__ import annotations

import html
import json
import math
from importlib.resources import files
from typing import Any, Final

from sim.map.model import Figures, Map, Point
from sim.results.names import METRICS

MOST_BYTES: Final = 500_000
_FIELDS: Final = ("mean", "half", "depth", "breadth", "step_ms", "acceptance_length")


def fragment(found: Map) -> str:
    """The explorer as a section with its own style, data and script; all text is escaped."""
    style, script, body = (_file(f"explorer.{kind}") for kind in ("css", "js", "html"))
    data = json.dumps(data_of(found), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return (
        f"<style>\n{style}</style>\n{body}"
        f'<script type="application/json" id="leadline-map">{_inert(data)}</script>\n'
        f"<script>\n{script}</script>\n"
    )


def page(found: Map) -> str:
    """The explorer as a whole page that fetches nothing."""
    title = html.escape(f"Explorer: {found.about['scenario']}")
    return _file("page.html").replace("{title}", title).replace("{body}", fragment(found))


def data_of(found: Map) -> dict[str, Any]:
    """What the script needs, short: points as arrays, policies by number."""
    metric = METRICS[found.metric]
    return {
        "metric": {"label": metric.label, "unit": metric.unit, "lower": metric.better == "lower"},
        "error": found.error,
        "baseline": found.policies.index(found.baseline),
        "axes": [
            {"name": a.name, "title": a.title, "unit": a.unit, "log": a.log, "values": a.values}
            for a in found.axes
        ],
        "policies": found.policies,
        "depths": {str(found.policies.index(label)): depth for depth, label in found.depths.items()},
        "points": [_point(found, point) for point in found.points],
        "cells": found.cells,
        "curve": {
            "tokens": found.curve.tokens,
            "ms": found.curve.ms,
            "context": found.curve.per_context_ms,
            "query": found.curve.per_query_context_ms,
            "wide": found.curve.per_wide_context_ms,
            "ridge": found.curve.ridge,
        },
        "about": _basis(found),
    }


def _basis(found: Map) -> str:
    about = found.about
    costs = f"{about['profile']} ({about['profile_kind']}), drafter {about['drafter']}"
    return f"{costs}, {len(found.points)} simulated points, {len(about['seeds'])} seeds each"


def _point(found: Map, point: Point) -> list[Any]:
    """Coordinates, rate, context, per policy its figures or 0 where it is unstable, the enough depth."""
    figures = [_figures(point.policies[label]) for label in found.policies]
    enough = min((depth for depth, label in found.depths.items() if label in point.depth.even), default=None)
    return [point.at, _short(point.rate_per_s), _short(point.context_tokens), figures, enough]


def _figures(figures: Figures) -> list[float | None] | int:
    if figures.unstable:
        return 0
    return [_short(getattr(figures, name)) for name in _FIELDS]


def _short(value: float) -> float | None:
    return float(f"{value:.5g}") if math.isfinite(value) else None


def _inert(text: str) -> str:
    """JSON that no HTML parser takes for markup."""
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _file(name: str) -> str:
    return files("sim.map").joinpath("pages", name).read_text(encoding="utf-8")
