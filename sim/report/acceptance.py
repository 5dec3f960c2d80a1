"""Acceptance by position: what the acceptance sources give to this traffic, before any policy acts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from sim.acceptance.survey import Survey
from sim.engine.simulate import Setup
from sim.report.examples import Examples
from sim.report.layout import Layout
from sim.report.model import Chart, PolicyStyle, Row, Table
from sim.report.vega import PANEL_WIDTH, SETTING, altair, finished, values
from sim.results.terminal import number

REQUESTS: Final = 200
"""Requests whose paths are drawn; the first ones of the seed that is looked into."""
_KINDS: Final = {
    "accepted at this position, of all rounds": "#2f7fd0",
    "of those that got this far": "#d55e00",
}


def by_position(layout: Layout, examples: Examples, styles: Sequence[PolicyStyle]) -> Chart | None:
    """Share of rounds that accept each draft position; ``None`` if no policy drafts."""
    rows: list[Row] = []
    cells: list[tuple[str, ...]] = []
    for setting in layout.settings:
        setup = examples.setup(setting, layout)
        for name, shares in survivals(setup).items():
            before = np.concatenate([[1.0], shares[:-1]])
            given = np.divide(shares, before, out=np.zeros_like(shares), where=before > 0)
            for position, pair in enumerate(zip(shares.tolist(), given.tolist(), strict=True), 1):
                where = {"setting": setting, "class": name, "position": position}
                rows += [
                    {**where, "kind": k, "share": round(v, 4)} for k, v in zip(_KINDS, pair, strict=True)
                ]
                cells.append((setting or "all", name, str(position), *(number(v) for v in pair)))
    if not rows:
        return None
    alt = altair()
    scale = alt.Scale(domain=list(_KINDS), range=list(_KINDS.values()))
    legend = alt.Legend(orient="top", columns=1)
    base = alt.Chart().encode(
        x=alt.X("position:O", title="draft position", axis=alt.Axis(labelAngle=0)),
        y=alt.Y("share:Q", title="share accepted", scale=alt.Scale(domain=[0, 1])),
        color=alt.Color("kind:N", title=None, scale=scale, legend=legend),
        tooltip=[alt.Tooltip(n) for n in ("class:N", "position:O", "kind:N", "share:Q")],
    )
    marks = alt.layer(base.mark_line(strokeWidth=1.5), base.mark_point(size=45, filled=True, opacity=1))
    chart = (
        marks.properties(width=PANEL_WIDTH, height=200)
        .facet(data=values(rows), facet=alt.Facet("class:N", title=None), columns=2)
        .transform_filter(SETTING)
    )
    title = "How far do drafts survive?"
    text = f"{title} Share of rounds that accept each draft position, of all and of those that got so far."
    note = (
        f"Rounds at full depth over {REQUESTS} requests of seed {examples.seed}, from the scenario's source. "
        "vLLM's counter per position is the first of the two lines."
    )
    columns = ("setting", "class", "position", *_KINDS)
    classes = len({row["class"] for row in rows})
    spec = finished(chart, styles, layout.settings, text)
    return Chart("acceptance", title, text, spec, Table(title, columns, tuple(cells)), note, classes)


def survivals(setup: Setup) -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float64]]]:
    """By class of requests, share of rounds at full depth that accept at least 1, 2, ... drafts."""
    if setup.drafter is None or setup.max_depth == 0:
        return {}
    requests, found = setup.requests, {}
    depth = min(setup.max_depth, setup.drafter.max_depth)
    for number_, name in enumerate(requests.classes):
        rows = np.flatnonzero(requests.class_id == number_)[:REQUESTS].tolist()
        process = setup.processes[number_]
        runs = [
            process.path(row, int(requests.prompt_tokens[row]), int(requests.output_tokens[row])).run
            for row in rows
        ]
        if runs:
            found[name] = Survey(runs).survival(depth)
    return found
