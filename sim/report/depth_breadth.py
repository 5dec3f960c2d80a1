"""Depth against breadth: what a step's tokens cost, where the ridge is, and where each policy sits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from sim.report.examples import Example, Examples, replica_of
from sim.report.layout import Layout, Place
from sim.report.model import Chart, PolicyStyle, Row, Table
from sim.report.vega import PANEL_WIDTH, SETTING, SHOWN, altair, colour, finished, rounded, shape, values
from sim.results.terminal import number
from sim.units import NS_PER_MS

_LOG: Final = {"labelOverlap": "greedy", "format": "~s"}


@dataclass(frozen=True)
class Spot:
    """Means over the decode-only steps of one run: tokens, ms without drafting, sequences, depth, context."""

    tokens: float
    ms: float
    breadth: float
    depth: float
    context: float


def depth_breadth(layout: Layout, examples: Examples, styles: Sequence[PolicyStyle]) -> Chart:
    """Step tokens against time, and depth against breadth, with the ridge in both."""
    drawn = [place for setting in layout.settings for place in layout.panels(setting)]
    stable = [(place, p.label) for place in drawn for p in place.compared.policies if not p.unstable]
    spots = [(place, label, spot) for place, label in stable if (spot := spot_of(examples.of(place, label)))]
    points = [_row(place, label, spot) for place, label, spot in spots]
    curves, ridges, same = _curves(layout, spots, examples)
    alt = altair()
    chart = alt.concat(
        _time(points, curves, ridges, styles), _plane(points, ridges, same, styles), columns=2
    ).resolve_scale(color="shared", shape="shared")
    if ridges:
        at = ", ".join(dict.fromkeys(f"{row['ridge']:.0f}" for row in ridges))
        title = f"Who fills the step up to the ridge ({at} tokens), and with depth or with breadth?"
    else:
        title = "Who fills the step, and with depth or with breadth?"
    text = f"{title} Left: milliseconds over step tokens. Right: depth over sequences in the step."
    columns = (
        "load",
        "policy",
        "step tokens",
        "step without drafting (ms)",
        "breadth",
        "depth",
        "context (tokens)",
    )
    cells = tuple(
        (place.name, label, *map(number, (s.tokens, s.ms, s.breadth, s.depth, s.context)))
        for place, label, s in spots
    )
    note = (
        f"Points are means over the decode-only steps of seed {examples.seed}, one per load. The line is "
        "what the profile charges for one token per sequence at the mean context. Left of the ridge further "
        "tokens are nearly free; the curve on the right joins all steps that just reach it."
        + ("" if ridges else " This profile has no ridge within its range.")
    )
    spec = finished(chart, styles, layout.settings, text)
    return Chart("depth-breadth", title, text, spec, Table(title, columns, cells), note, 2)


def spot_of(example: Example) -> Spot | None:
    """Where a run sits, or ``None`` if it has no step without prompt tokens."""
    steps = example.records.steps
    alone = (steps["prefill_tokens"] == 0) & (steps["decodes"] > 0)
    if not alone.any():
        return None
    mean = {name: float(values_[alone].mean()) for name, values_ in steps.items()}
    depth = float((steps["drafted"][alone] / steps["decodes"][alone]).mean())
    took = mean["verify_ns"] + mean["accept_ns"] + mean["host_ns"]
    context = mean["context_tokens"] / mean["decodes"]
    return Spot(mean["tokens"], took / NS_PER_MS, mean["decodes"], depth, context)


def _time(points: list[Row], curves: list[Row], ridges: list[Row], styles: Sequence[PolicyStyle]) -> Any:
    alt = altair()
    x = alt.X("tokens:Q", title="step tokens", scale=alt.Scale(type="log", nice=False), axis=_LOG)
    y = alt.Y("ms:Q", title="step without drafting (ms)", scale=alt.Scale(zero=False))
    line = alt.Chart(values(curves)).mark_line(color="#888", strokeWidth=2).encode(x=x, y=y)
    return _layers(line, _ridge_rule(ridges), _points(points, x, y, styles)).properties(
        width=PANEL_WIDTH, height=240
    )


def _plane(points: list[Row], ridges: list[Row], same: list[Row], styles: Sequence[PolicyStyle]) -> Any:
    alt = altair()
    x = alt.X(
        "breadth:Q", title="breadth (sequences per step)", scale=alt.Scale(type="log", nice=False), axis=_LOG
    )
    y = alt.Y("depth:Q", title="depth (drafts per sequence)")
    line = alt.Chart(values(same)).mark_line(color="#888", strokeDash=[4, 3], clip=True).encode(x=x, y=y)
    return _layers(line, None, _points(points, x, y, styles)).properties(width=PANEL_WIDTH, height=240)


def _layers(line: Any, rule: Any | None, points: Any) -> Any:
    alt = altair()
    charts = [each.transform_filter(SETTING) for each in (line, rule) if each is not None]
    return alt.layer(*charts, points)


def _points(points: list[Row], x: Any, y: Any, styles: Sequence[PolicyStyle]) -> Any:
    alt = altair()
    names = ("policy:N", "load:N", "tokens:Q", "ms:Q", "breadth:Q", "depth:Q")
    return (
        alt.Chart(values(points))
        .mark_point(size=55, filled=True, opacity=1)
        .encode(x=x, y=y, color=colour(styles), shape=shape(styles), tooltip=[alt.Tooltip(n) for n in names])
        .transform_filter(SHOWN)
        .transform_filter(SETTING)
    )


def _ridge_rule(ridges: list[Row]) -> Any:
    alt = altair()
    base = alt.Chart(values(ridges)).encode(x="ridge:Q")
    rule = base.mark_rule(color="#888", strokeDash=[4, 3])
    text = base.mark_text(align="right", dx=-4, dy=6, baseline="top").encode(
        y=alt.value(0), text=alt.datum("ridge")
    )
    return rule + text


def _curves(
    layout: Layout, spots: list[tuple[Place, str, Spot]], examples: Examples
) -> tuple[list[Row], list[Row], list[Row]]:
    """By setting: cost over step tokens, the ridge, and the depths that reach it by breadth."""
    curves: list[Row] = []
    ridges: list[Row] = []
    same: list[Row] = []
    for setting in layout.settings:
        own = [spot for place, _, spot in spots if place.setting == setting]
        if not own:
            continue
        setup = examples.setup(setting, layout)
        cost, context = replica_of(setup).cost, float(np.mean([spot.context for spot in own]))
        ridge, deepest = setup.profile.ridge_tokens, max(1.0, *(spot.depth for spot in own))
        furthest = max(1.5 * (ridge or 0), 1.2 * max(spot.tokens for spot in own), 8)
        grid = np.unique(np.geomspace(1, min(furthest, cost.max_tokens), 80).astype(np.int64))
        curves += [
            {
                "setting": setting,
                "tokens": n,
                "ms": rounded(float(cost.target_ns(n, n, context * n)) / NS_PER_MS),
            }
            for n in grid.tolist()
        ]
        if ridge is None:
            continue
        ridges.append({"setting": setting, "ridge": ridge})
        breadths = np.geomspace(max(1.0, ridge / (1.15 * deepest + 1)), ridge, 40)
        same += [
            {"setting": setting, "breadth": rounded(float(n)), "depth": rounded(float(ridge / n - 1))}
            for n in breadths
        ]
    return curves, ridges, same


def _row(place: Place, label: str, spot: Spot) -> Row:
    return {
        "setting": place.setting,
        "load": place.load,
        "policy": label,
        **{name: rounded(getattr(spot, name)) for name in ("tokens", "ms", "breadth", "depth")},
    }
