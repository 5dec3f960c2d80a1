"""Depth and batch over the time of one run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from sim.report.examples import Examples
from sim.report.layout import Layout, Place
from sim.report.model import Chart, PolicyStyle, Row, Table
from sim.report.vega import PANEL_WIDTH, SETTING, SHOWN, altair, colour, dash, finished, rounded, values
from sim.results.run_records import Columns
from sim.results.terminal import number
from sim.units import NS_PER_S

BINS: Final = 100
MOST_POLICIES: Final = 6
_DEPTH: Final = "depth (drafts per sequence)"
_BATCH: Final = "batch (sequences per step)"


def timeline(
    layout: Layout, examples: Examples, drawn: Sequence[str], styles: Sequence[PolicyStyle]
) -> Chart:
    """Mean depth and batch in ``BINS`` equal stretches of the run at the middle load of every setting."""
    places = [_middle(layout, setting) for setting in layout.settings]
    runs = [(place, policy, examples.of(place, policy).records.steps) for place in places for policy in drawn]
    rows = [row for place, policy, steps in runs for row in _rows(place, policy, steps)]
    alt = altair()
    tip = [alt.Tooltip("policy:N"), alt.Tooltip("time:Q", title="s"), alt.Tooltip("value:Q")]
    line = alt.Chart().mark_line(interpolate="step-after", strokeWidth=1.5)
    panel = line.encode(
        x=alt.X("time:Q", title="time (s)"),
        y=alt.Y("value:Q", title=None),
        color=colour(styles),
        strokeDash=dash(styles),
        tooltip=tip,
    ).properties(width=2 * PANEL_WIDTH, height=150)
    chart = (
        panel.facet(
            data=values(rows), facet=alt.Facet("what:N", title=None, sort=[_DEPTH, _BATCH]), columns=1
        )
        .resolve_scale(y="independent")
        .transform_filter(SHOWN)
        .transform_filter(SETTING)
    )
    where = places[0].load if len(places) == 1 else "the middle load"
    title = f"How do depth and batch move over a run at {where}?" if where != "base" else _title_of_base()
    text = f"{title} Two panels, depth above batch, one line per policy over seconds."
    most = f" {len(drawn)} of {len(styles)} policies are drawn." if len(drawn) < len(styles) else ""
    note = f"Seed {examples.seed}, means over {BINS} equal stretches of time.{most}"
    columns = ("load", "policy", "depth, mean", "largest depth", "batch, mean", "largest batch", "steps")
    cells = tuple(_text(place, policy, steps) for place, policy, steps in runs)
    spec = finished(chart, styles, layout.settings, text)
    return Chart("timeline", title, text, spec, Table(title, columns, cells), note)


def _title_of_base() -> str:
    return "How do depth and batch move over a run?"


def _middle(layout: Layout, setting: str) -> Place:
    places = layout.of(setting)
    return places[len(places) // 2]


def _rows(place: Place, policy: str, steps: Columns) -> list[Row]:
    """Depth over decoding steps, sequences weighted by time; a stretch without steps has neither."""
    end = int(steps["end_ns"].max(initial=1))
    at = np.minimum(steps["end_ns"] * BINS // (end + 1), BINS - 1)
    took = steps["end_ns"] - steps["start_ns"]

    def ratio(over: object, under: object) -> list[float]:
        above, below = (np.bincount(at, np.asarray(each, float), BINS) for each in (over, under))
        return [a / b if b else float("nan") for a, b in zip(above, below, strict=True)]

    found = {
        _DEPTH: ratio(steps["drafted"], steps["decodes"]),
        _BATCH: ratio(steps["sequences"] * took, took),
    }
    return [
        {
            "setting": place.setting,
            "policy": policy,
            "what": what,
            "time": rounded(i * end / BINS / NS_PER_S),
            "value": rounded(value),
        }
        for what, series in found.items()
        for i, value in enumerate(series)
        if not np.isnan(value)
    ]


def _text(place: Place, policy: str, steps: Columns) -> tuple[str, ...]:
    decoding = steps["decodes"] > 0
    depths = steps["drafted"][decoding] / steps["decodes"][decoding]
    took = steps["end_ns"] - steps["start_ns"]
    batch = float((steps["sequences"] * took).sum() / took.sum()) if took.sum() else float("nan")
    return (
        place.name,
        policy,
        number(float(depths.mean())) if len(depths) else "-",
        str(int(steps["depth"].max(initial=0))),
        number(batch),
        str(int(steps["sequences"].max(initial=0))),
        f"{len(took):,}",
    )
