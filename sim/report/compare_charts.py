"""Charts of the comparison: every policy at every load, with the intervals of its seeds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Final

from sim.report.layout import Layout, Place
from sim.report.model import Chart, PolicyStyle, Row, Table
from sim.report.vega import (
    PANEL_HEIGHT,
    PANEL_WIDTH,
    SETTING,
    SHOWN,
    altair,
    colour,
    dash,
    finished,
    label_width,
    rounded,
    shape,
    values,
)
from sim.results.compare import Comparison, Difference, PolicyResult, against, best_policy, paired_difference
from sim.results.names import METRICS
from sim.results.terminal import number
from sim.results.words import percent

_SHOWN_METRICS: Final = ("ttft_p99_ms", "tpot_mean_ms", "e2el_mean_ms", "goodput_per_s")
_ROW: Final = 18


def latency(layout: Layout, comparison: Comparison, styles: Sequence[PolicyStyle]) -> Chart:
    """Latencies, and goodput if there is an SLO, against the load."""
    names = _metrics(comparison, layout)
    rows = [
        {**_at(place), "policy": policy.label, "metric": axis_title(name), **_interval(policy, name)}
        for place in layout.places
        for policy in place.compared.policies
        for name in names
        if not math.isnan(policy.mean(name))
    ]
    alt = altair()
    one = all(len(layout.of(setting)) == 1 for setting in layout.settings)
    panel = _one_load(styles) if one else _over_load(layout, styles)
    chart = (
        panel.facet(
            data=values(rows),
            facet=alt.Facet("metric:N", title=None, sort=[axis_title(n) for n in names]),
            columns=2,
        )
        .resolve_scale(**{"x" if one else "y": "independent"})
        .transform_filter(SHOWN)
        .transform_filter(SETTING)
    )
    what = "latency and goodput" if "goodput_per_s" in names else "latency"
    title = f"How do the policies compare in {what}?" if one else f"How does the load change {what}?"
    text = f"{title} {len(names)} panels, every policy over {layout.axis}, with 95 % intervals."
    columns = ("load", "policy", *(axis_title(name) for name in names))
    cells = tuple(
        (place.name, policy.label, *(_mean(policy, name) for name in names))
        for place in layout.places
        for policy in place.compared.policies
    )
    note = _join("Bars are 95 % intervals over seeds.", _unstable_note(layout))
    spec = finished(chart, styles, layout.settings, text)
    axes = (30, label_width([style.label for style in styles])) if one else (64, 0)
    return Chart("latency", title, text, spec, Table(title, columns, cells), note, len(names), *axes)


def _over_load(layout: Layout, styles: Sequence[PolicyStyle]) -> Any:
    """Lines over the load, an interval and a point at each."""
    alt = altair()
    base = alt.Chart().encode(x=_load_axis(layout), color=colour(styles))
    y = alt.Y("value:Q", title=None, scale=alt.Scale(zero=False))
    return alt.layer(
        base.mark_line(strokeWidth=1.5).encode(y=y, strokeDash=dash(styles)),
        base.mark_rule().encode(y=alt.Y("low:Q", title=None), y2="high:Q"),
        base.mark_point(size=40, filled=True, opacity=1).encode(y=y, shape=shape(styles), tooltip=_tip()),
    ).properties(width=PANEL_WIDTH, height=PANEL_HEIGHT)


def _one_load(styles: Sequence[PolicyStyle]) -> Any:
    """A row per policy, where there is no second load to draw a line to."""
    alt = altair()
    order = [style.label for style in styles]
    base = alt.Chart().encode(y=alt.Y("policy:N", title=None, sort=order), color=colour(styles))
    x = alt.X("value:Q", title=None, scale=alt.Scale(zero=False))
    return alt.layer(
        base.mark_rule(strokeWidth=2).encode(x=alt.X("low:Q", title=None), x2="high:Q"),
        base.mark_point(size=55, filled=True, opacity=1).encode(x=x, shape=shape(styles), tooltip=_tip()),
    ).properties(width=PANEL_WIDTH, height=alt.Step(_ROW))


def _tip() -> list[Any]:
    return [altair().Tooltip(f"{name}:N") for name in ("policy", "load", "metric", "text")]


def pareto(layout: Layout, comparison: Comparison, styles: Sequence[PolicyStyle]) -> Chart:
    """Throughput of the replica against time per token: up and left is better."""
    stable = [(place, p) for place in layout.places for p in place.compared.policies if not p.unstable]
    points: list[Row] = [
        {
            **_at(place),
            "policy": policy.label,
            "tokens": rounded(policy.mean("output_tokens_per_s")),
            "tpot": rounded(policy.mean("tpot_mean_ms")),
        }
        for place, policy in stable
    ]
    bounds = {style.label for style in styles if style.bound}
    front = [{**row, "front": True} for s in layout.settings for row in _front(points, s, bounds)]
    alt = altair()
    x = alt.X("tpot:Q", title="time per output token, mean (ms)", scale=alt.Scale(zero=False))
    y = alt.Y("tokens:Q", title="output tokens per second", scale=alt.Scale(zero=False))
    tip = [
        alt.Tooltip(f"{n}:{t}") for n, t in (("policy", "N"), ("load", "N"), ("tokens", "Q"), ("tpot", "Q"))
    ]
    base = alt.Chart().encode(x=x, y=y)
    lines = base.mark_line(strokeWidth=1, opacity=0.6).encode(
        color=colour(styles), strokeDash=dash(styles), order="value_x:Q"
    )
    marks = base.mark_point(size=55, filled=True, opacity=1).encode(
        color=colour(styles), shape=shape(styles), tooltip=tip
    )
    edge = (
        alt.Chart(values(front))
        .mark_line(interpolate="step-before", strokeWidth=7, opacity=0.18, color=styles[0].colour)
        .encode(x=x, y=y, order="tpot:Q")
        .transform_filter(SETTING)
    )
    chart = (
        alt.layer(edge, lines, marks, data=values(points))
        .transform_filter(SHOWN)
        .transform_filter(SETTING)
        .properties(width=2 * PANEL_WIDTH, height=1.3 * PANEL_HEIGHT)
    )
    title = "Which policies give the most tokens at the least time per token?"
    text = f"{title} A point per policy and load; the broad band joins those that no other beats in both."
    on_front = {(row["setting"], row["load"], row["policy"]) for row in front}
    cells = tuple(
        (
            place.name,
            policy.label,
            number(policy.mean("output_tokens_per_s")),
            number(policy.mean("tpot_mean_ms")),
            "yes" if (place.setting, place.load, policy.label) in on_front else "",
        )
        for place, policy in stable
    )
    columns = ("load", "policy", "output tokens/s", "TPOT mean (ms)", "on the front")
    spec = finished(chart, styles, layout.settings, text)
    note = "Up and to the left is better. Bounds (clairvoyant) are drawn and never on the front."
    return Chart("pareto", title, text, spec, Table(title, columns, cells), note)


def forest(layout: Layout, comparison: Comparison, styles: Sequence[PolicyStyle]) -> Chart:
    """Paired differences from the baseline, with what the profile's error makes even."""
    label = METRICS[comparison.metric].label
    pairs = list(_differences(layout, comparison, lambda place: comparison.baseline))
    title = f"By how much does each policy differ from {comparison.baseline} in {label}?"
    axis = f"{label} against {comparison.baseline} (%)"
    better = "left" if METRICS[comparison.metric].better == "lower" else "right"
    margin = (
        " The grey band is the profile's error: inside it, policies are even." if comparison.error else ""
    )
    note = f"{better.capitalize()} of zero is better. Bars are paired 95 % intervals.{margin}"
    rows = [_relative(place, policy, found, 1.0) for place, policy, found in pairs]
    return _dots("forest", title, axis, note, rows, pairs, layout, comparison.error, styles)


def regret(layout: Layout, comparison: Comparison, styles: Sequence[PolicyStyle]) -> Chart:
    """What each policy loses against the clairvoyant bound, or against the best if there is none."""
    bound = next((style.label for style in styles if style.bound), None)
    label = METRICS[comparison.metric].label
    sign = 1.0 if METRICS[comparison.metric].better == "lower" else -1.0

    def reference(place: Place) -> str:
        best = best_policy(place.compared, comparison.metric, comparison.error)
        return bound or best.label or comparison.baseline

    pairs = list(_differences(layout, comparison, reference))
    of = bound or "the best policy"
    title = f"How much {label} does each policy lose against {of}?"
    if bound is None:
        note = "No oracle is among the policies, so the loss is against the best of each load."
    else:
        note = f"{bound} knows which drafts will be accepted: no real policy can be like it."
    rows = [_relative(place, policy, found, sign) for place, policy, found in pairs]
    axis = f"loss in {label} against {of} (%)"
    return _dots("regret", title, axis, note, rows, pairs, layout, comparison.error, styles)


def axis_title(name: str) -> str:
    """A metric with its unit, for axes and columns."""
    metric = METRICS[name]
    unit = {"/s": "per second"}.get(metric.unit, metric.unit)
    return f"{metric.label} ({unit})" if unit else metric.label


_Pair = tuple[Place, PolicyResult, Difference]


def _differences(layout: Layout, comparison: Comparison, reference: Any) -> Iterator[_Pair]:
    """Every policy against the reference of its load, where both are stable."""
    for place in layout.places:
        other = reference(place)
        found = against(place.compared, other, comparison.metric, comparison.error)
        for policy, difference in zip(place.compared.policies, found, strict=True):
            if difference is not None and difference.verdict != "no data" and policy.label != other:
                yield place, policy, difference


def _relative(place: Place, policy: PolicyResult, found: Difference, sign: float) -> Row:
    change, width = 100 * sign * (found.ratio - 1), 100 * found.ratio_half_width
    sides = (change - width, change + width) if math.isfinite(width) else (change, change)
    return {
        **_at(place),
        "policy": policy.label,
        "change": rounded(change),
        "low": rounded(sides[0]),
        "high": rounded(sides[1]),
        "text": percent(found),
        "verdict": found.verdict,
    }


def _dots(
    key: str,
    title: str,
    axis: str,
    note: str,
    rows: list[Row],
    pairs: list[_Pair],
    layout: Layout,
    error: float,
    styles: Sequence[PolicyStyle],
) -> Chart:
    """A dot with its interval per policy, one panel per load."""
    alt = altair()
    panels = {(place.setting, place.load) for s in layout.settings for place in layout.panels(s)}
    shown = [row for row in rows if (row["setting"], row["load"]) in panels]
    order = [style.label for style in styles]
    y = alt.Y("policy:N", title=None, sort=order)
    base = alt.Chart().encode(y=y, color=colour(styles))
    tip = [alt.Tooltip(f"{name}:N") for name in ("policy", "load", "text", "verdict")]
    once = alt.Chart().transform_aggregate(rows="count()")  # of many rows one mark, not many over another
    marks = alt.layer(
        once.mark_rect(color="#888", opacity=0.18 if error else 0).encode(
            x=alt.datum(-100 * error), x2=alt.datum(100 * error)
        ),
        once.mark_rule(color="#888").encode(x=alt.datum(0)),
        base.mark_rule(strokeWidth=2).encode(x=alt.X("low:Q", title=axis), x2="high:Q"),
        base.mark_point(size=55, filled=True, opacity=1).encode(
            x="change:Q", shape=shape(styles), tooltip=tip
        ),
    )
    count = max(len(layout.panels(s)) for s in layout.settings)
    chart = (
        marks.properties(width=PANEL_WIDTH, height=alt.Step(_ROW))
        .facet(data=values(shown), facet=alt.Facet("load:N", title=None, sort=_load_order(layout)), columns=2)
        .transform_filter(SHOWN)
        .transform_filter(SETTING)
    )
    text = f"{title} One panel per load, one dot with its 95 % interval per policy."
    cells = tuple((place.name, policy.label, percent(d), d.verdict) for place, policy, d in pairs)
    columns = ("load", "policy", "difference", "verdict")
    note = _join(note, _some_panels(layout), _unstable_note(layout))
    spec = finished(chart, styles, layout.settings, text)
    return Chart(key, title, text, spec, Table(title, columns, cells), note, count, 26, label_width(order))


def _metrics(comparison: Comparison, layout: Layout) -> list[str]:
    wanted = dict.fromkeys((comparison.metric, *_SHOWN_METRICS))
    policies = [policy for place in layout.places for policy in place.compared.policies]
    return [n for n in wanted if any(not math.isnan(policy.mean(n)) for policy in policies)]


def _load_axis(layout: Layout) -> Any:
    alt = altair()
    if not layout.numeric:
        return alt.X("load:O", title=layout.axis, sort=_load_order(layout), axis=alt.Axis(labelAngle=0))
    loads = [place.value for place in layout.places if place.value is not None]
    spread = max(loads) / min(loads) if min(loads) > 0 else 1.0
    scale = alt.Scale(type="log") if spread > 20 else alt.Scale(zero=False, nice=False, padding=12)
    ticks = sorted(set(loads))
    axis = alt.Axis(values=ticks, format="~r") if len(ticks) <= 12 else alt.Axis(labelOverlap="greedy")
    return alt.X("value_x:Q", title=layout.axis, scale=scale, axis=axis)


def _load_order(layout: Layout) -> list[str]:
    return list(dict.fromkeys(place.load for place in layout.places))


def _at(place: Place) -> Row:
    """Where a row belongs."""
    return {"setting": place.setting, "load": place.load, "value_x": place.value}


def _interval(policy: PolicyResult, name: str) -> Row:
    """Mean of the stable seeds and its 95 % interval, which is that of their difference from nothing."""
    seeds = policy.values(name).tolist()
    found = paired_difference(name, [0.0] * len(seeds), seeds)
    width = found.half_width if math.isfinite(found.half_width) else 0.0
    return {
        "value": rounded(found.mean),
        "low": rounded(max(0.0, found.mean - width)),  # no metric is negative
        "high": rounded(found.mean + width),
        "text": _mean(policy, name),
    }


def _mean(policy: PolicyResult, name: str) -> str:
    if policy.unstable:
        return "unstable"
    seeds = policy.values(name).tolist()
    width = paired_difference(name, [0.0] * len(seeds), seeds).half_width
    text = number(policy.mean(name))
    return f"{text} ± {number(width)}" if math.isfinite(width) and text != "-" else text


def _front(points: list[Row], setting: str, bounds: set[str]) -> list[Row]:
    """Points that no other one beats in both, from the shortest time per token up."""
    own = [
        p for p in points if p["setting"] == setting and p["policy"] not in bounds and p["tpot"] is not None
    ]
    front: list[Row] = []
    for point in sorted(own, key=lambda p: (p["tpot"], -p["tokens"])):
        if not front or point["tokens"] > front[-1]["tokens"]:
            front.append(point)
    return front


def _unstable_note(layout: Layout) -> str:
    named = [
        f"{p.label} at {place.name}" for place in layout.places for p in place.compared.policies if p.unstable
    ]
    if not named:
        return ""
    head, rest = named[:8], len(named) - 8
    more = f" and {rest} more" if rest > 0 else ""
    return f"Unstable, so without a mean: {', '.join(head)}{more}."


def _some_panels(layout: Layout) -> str:
    most = max(len(layout.of(s)) for s in layout.settings)
    shown = max(len(layout.panels(s)) for s in layout.settings)
    return f"{shown} of {most} loads are drawn; the table has all." if shown < most else ""


def _join(*parts: str) -> str:
    return " ".join(part for part in parts if part)
