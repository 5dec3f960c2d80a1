"""Where the time of a step goes: weights, attention, drafting, sampling, host, and what rejected drafts took.

Waste is what the same steps would have saved without the tokens that gave no output: the target's
terms at the fewer tokens, and the drafter's time by the share of its drafts that was rejected. Below
the ridge it is small however many drafts are rejected; that is why speculation pays there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from calibrate.profile import Profile, Term
from sim.cost.breakdown import breakdown_ns
from sim.cost.step_cost import StepCost
from sim.report.examples import Example, Examples
from sim.report.layout import Layout
from sim.report.model import Chart, PolicyStyle, Row, Table
from sim.report.vega import PANEL_WIDTH, SETTING, SHOWN, altair, finished, label_width, rounded, values
from sim.results.run_records import Columns
from sim.results.terminal import number
from sim.units import NS_PER_MS

WASTE: Final = "waste (rejected drafts)"
PARTS: Final = {
    "weights": "#2f7fd0",
    "attention": "#00946b",
    "draft": "#b65fa8",
    "sampling": "#8a7a00",
    "host": "#7d828b",
    WASTE: "#d55e00",
}
_CONTEXT: Final = {"context_tokens", "query_context_tokens", "prefill_pairs", "wide_context_tokens"}


def breakdown(layout: Layout, examples: Examples, styles: Sequence[PolicyStyle]) -> Chart:
    """Mean milliseconds per step of every part, stacked, one panel per load."""
    drawn = [place for setting in layout.settings for place in layout.panels(setting)]
    stable = [(place, p.label) for place in drawn for p in place.compared.policies if not p.unstable]
    found = [(place, label, parts_ms(examples.of(place, label))) for place, label in stable]
    rows: list[Row] = [
        {
            "setting": place.setting,
            "load": place.load,
            "policy": label,
            "part": part,
            "ms": rounded(ms),
            "rank": i,
        }
        for place, label, parts in found
        for i, (part, ms) in enumerate(parts.items())
        if ms > 0
    ]
    alt = altair()
    scale = alt.Scale(domain=list(PARTS), range=list(PARTS.values()))
    tip = [alt.Tooltip(f"{name}") for name in ("policy:N", "load:N", "part:N", "ms:Q")]
    bars = (
        alt.Chart()
        .mark_bar()
        .encode(
            y=alt.Y("policy:N", title=None, sort=[style.label for style in styles]),
            x=alt.X("ms:Q", title="milliseconds per step", stack="zero"),
            color=alt.Color("part:N", title=None, scale=scale, legend=alt.Legend(orient="top", columns=3)),
            order=alt.Order("rank:Q"),
            tooltip=tip,
        )
        .properties(width=PANEL_WIDTH, height=alt.Step(18))
    )
    order = list(dict.fromkeys(place.load for place in layout.places))
    chart = (
        bars.facet(data=values(rows), facet=alt.Facet("load:N", title=None, sort=order), columns=2)
        .transform_filter(SHOWN)
        .transform_filter(SETTING)
    )
    title = "Where does the time of a step go, and how much of it was for nothing?"
    text = f"{title} Stacked bars of milliseconds per step, one per policy, one panel per load."
    columns = ("load", "policy", *(f"{part} (ms)" for part in PARTS), "whole step (ms)")
    cells = tuple(
        (place.name, label, *(number(parts[p]) for p in PARTS), number(sum(parts.values())))
        for place, label, parts in found
    )
    note = (
        f"Seed {examples.seed}, all steps, prompts included. Waste is what the steps would have saved "
        "without the tokens that gave no output, and the drafter's time for rejected drafts; below the ridge "
        "the former is small."
    )
    spec = finished(chart, styles, layout.settings, text)
    margin = label_width([style.label for style in styles])
    panels = max(len(layout.panels(setting)) for setting in layout.settings)
    return Chart("breakdown", title, text, spec, Table(title, columns, cells), note, panels, 26, margin)


def parts_ms(example: Example) -> dict[str, float]:
    """Mean ms per step of every part of ``PARTS``; together they are the mean step."""
    steps, profile, drafter = example.records.steps, example.profile, example.drafter
    count = max(len(steps["tokens"]), 1)
    whole = breakdown_ns(steps, profile, drafter)
    useful = breakdown_ns(_without_waste(example), profile, drafter)
    drafted, accepted = int(steps["drafted"].sum()), int(steps["accepted"].sum())
    useful["draft"] = whole.get("draft", 0.0) * (accepted / drafted if drafted else 1.0)
    found = dict.fromkeys(PARTS, 0.0)
    for name, ns in whole.items():
        kept = min(ns, useful.get(name, 0.0)) if not name.startswith("host.") else ns
        found[_part(name, profile)] += kept
        found[WASTE] += ns - kept
    return {part: ns / count / NS_PER_MS for part, ns in found.items()}


def _without_waste(example: Example) -> Columns:
    """The same steps without the verified positions that gave no output."""
    steps = example.records.steps
    vain = np.clip(steps["logits"] - steps["emitted"], 0, steps["drafted"])
    tokens = steps["tokens"] - vain
    cost = StepCost(example.profile, None, int(tokens.max(initial=1)), example.capture_sizes)
    decode_tokens = np.maximum(steps["tokens"] - steps["prefill_tokens"], 1)
    share = (decode_tokens - vain) / decode_tokens
    return {
        **steps,
        "tokens": tokens,
        "padded_tokens": cost.padded_array[tokens],
        "logits": steps["logits"] - vain,
        "query_context_tokens": np.rint(steps["query_context_tokens"] * share).astype(np.int64),
    }


def _part(name: str, profile: Profile) -> str:
    """The part that a ``pass.term`` belongs to."""
    kind, _, term = name.partition(".")
    if kind == "verify":
        named = next(each for each in profile.target.verify if each.name == term)
        return "attention" if _is_attention(named) else "weights"
    return {"accept": "sampling", "draft": "draft"}.get(kind, "host")


def _is_attention(term: Term) -> bool:
    """Whether a term is what reading the context costs; a term that holds both counts as weights."""
    return "attention" in term.name or (
        term.curve is None and bool(term.per_ns) and set(term.per_ns) <= _CONTEXT
    )
