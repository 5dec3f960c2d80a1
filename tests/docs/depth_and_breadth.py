"""Numbers and pictures of docs/depth-and-breadth.md, from two shipped profiles.

``python -m tests.docs.depth_and_breadth`` writes them again; a test keeps the numbers true. Acceptance
is independent per draft, so a round of depth k emits E(k) = (1 - a^(k+1)) / (1 - a) tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from calibrate.profile import load_profile
from sim.cost.step_cost import StepCost
from sim.units import NS_PER_MS
from tests.docs.blocks import filled, table

ROOT: Final = Path(__file__).resolve().parents[2]
PAGE: Final = ROOT / "docs" / "depth-and-breadth.md"
PICTURES: Final = ROOT / "docs" / "pictures"
CONTEXT: Final = 512
EVEN: Final = 0.02
"""Depths within this share of the best are as good."""
DEEPEST: Final = 8
DENSE: Final = "qwen3.5-27b-h200"
MOE: Final = "qwen3-30b-a3b-h100"
NAMES: Final = {DENSE: "dense, 27B on an H200", MOE: "mixture of experts, 30B-A3B on an H100"}
DRAFTERS: Final = {DENSE: "mtp", MOE: "eagle3"}
BREADTHS: Final = (1, 4, 8, 16, 32, 64, 128, 256)
TOKENS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")


@cache
def cost_of(name: str) -> StepCost:
    """Step costs of a profile and its drafter, without an engine's habits."""
    profile = load_profile(ROOT / "scenarios" / "profiles" / f"{name}.json")
    return StepCost(profile, profile.drafters[DRAFTERS[name]], (DEEPEST + 1) * max(BREADTHS))


def emitted(depth: int, acceptance: float) -> float:
    """Tokens that a round emits per sequence, the bonus token included."""
    return sum(acceptance**j for j in range(depth + 1))


def step_ms(name: str, tokens: int) -> float:
    """A step of that many sequences of one token each, without drafting."""
    return float(cost_of(name).target_ns(tokens, tokens, CONTEXT * tokens)) / NS_PER_MS


@dataclass(frozen=True)
class Round:
    """What one round at a breadth and a depth takes and buys."""

    breadth: int
    depth: int
    ms: float
    tokens_per_s: float
    ms_per_token: float


def round_of(name: str, breadth: int, depth: int, acceptance: float) -> Round:
    """Draft and verify ``depth`` tokens for each of ``breadth`` sequences."""
    ms = float(cost_of(name).round_ns(breadth, depth, CONTEXT * breadth)) / NS_PER_MS
    each = emitted(depth, acceptance)
    return Round(breadth, depth, ms, 1e3 * breadth * each / ms, ms / each)


def best(name: str, breadth: int, acceptance: float) -> Round:
    """The least depth whose tokens per second are within ``EVEN`` of the most."""
    rounds = [round_of(name, breadth, depth, acceptance) for depth in range(DEEPEST + 1)]
    most = max(one.tokens_per_s for one in rounds)
    return next(one for one in rounds if one.tokens_per_s >= (1 - EVEN) * most)


def gain(name: str, breadth: int, depth: int, acceptance: float) -> float:
    """Speed over that of plain decoding."""
    plain = round_of(name, breadth, 0, acceptance)
    return round_of(name, breadth, depth, acceptance).tokens_per_s / plain.tokens_per_s


# -- numbers ---------------------------------------------------------------------------------------


def steps() -> str:
    """Step time over that of one token, by step tokens."""
    head = ("step tokens", *(str(n) for n in TOKENS))
    rows = [(NAMES[name], *(f"{step_ms(name, n) / step_ms(name, 1):.2f}" for n in TOKENS)) for name in NAMES]
    ridge = cost_of(DENSE).profile.ridge_tokens
    return (
        f"{table(head, rows)}\n\nTimes the step of one token, which takes {step_ms(DENSE, 1):.1f} ms and "
        f"{step_ms(MOE, 1):.1f} ms. Ridge of the dense model: {ridge:.0f} tokens; the other has none."
    )


def depths() -> str:
    """Enough depth and its gain over plain decoding, by breadth and acceptance."""
    head = ("sequences", *(str(b) for b in BREADTHS))
    rows = [
        (f"{NAMES[name].partition(',')[0]}, acceptance {a:g}", *(_best(name, b, a) for b in BREADTHS))
        for name in NAMES
        for a in (0.5, 0.7, 0.9)
    ]
    return table(head, rows)


def _best(name: str, breadth: int, acceptance: float) -> str:
    found = best(name, breadth, acceptance)
    return (
        f"{found.depth}:\N{NO-BREAK SPACE}{gain(name, breadth, found.depth, acceptance):.2f}"
        if found.depth
        else "0"
    )


def waste() -> str:
    """What a fixed depth computes, and what it keeps, at acceptance 0.7."""
    head = ("depth", "tokens kept", "tokens verified per token kept", "drafts wasted", *_widths())
    rows = [
        (
            str(k),
            f"{emitted(k, 0.7):.2f}",
            f"{(k + 1) / emitted(k, 0.7):.2f}",
            f"{1 - (emitted(k, 0.7) - 1) / k:.0%}",
            *(f"{gain(DENSE, b, k, 0.7):.2f}" for b in (1, 32, 128, 256)),
        )
        for k in (1, 2, 3, 5, 8)
    ]
    return table(head, rows)


def _widths() -> list[str]:
    return [f"speed at {b} sequence{'s' if b > 1 else ''}" for b in (1, 32, 128, 256)]


def page() -> str:
    """The page with its numbers made anew."""
    parts = {"steps": steps(), "depths": depths(), "waste": waste()}
    return filled(PAGE.read_text(encoding="utf-8"), parts)


# -- pictures --------------------------------------------------------------------------------------


def draw() -> None:
    """Write the four pictures."""
    for name, chart in (
        ("step", _steps()),
        ("frontier", _frontier()),
        ("depth", _depths()),
        ("waste", _waste()),
    ):
        chart.configure_view(stroke=None).configure_axis(
            labelFontSize=12, titleFontSize=12, titleFontWeight="normal", gridColor="#e8e8e8"
        ).configure_legend(
            labelFontSize=12, labelLimit=300, titleFontSize=12, titleFontWeight="normal"
        ).properties(background="white", padding=8).save(
            str(PICTURES / f"depth-and-breadth-{name}.svg"), format="svg"
        )


def _data(rows: Sequence[dict[str, Any]]) -> Any:
    import altair as alt

    return alt.Data(
        values=[{k: round(v, 4) if isinstance(v, float) else v for k, v in r.items()} for r in rows]
    )


def _steps() -> Any:
    import altair as alt

    grid = sorted({*range(1, 65), *range(64, 1025, 8)})
    rows = [
        {"model": NAMES[name], "tokens": n, "times": step_ms(name, n) / step_ms(name, 1)}
        for name in NAMES
        for n in grid
    ]
    ridge = alt.Chart(_data([{"ridge": cost_of(DENSE).profile.ridge_tokens}])).encode(x="ridge:Q")
    line = (
        alt.Chart(_data(rows))
        .mark_line(strokeWidth=2)
        .encode(
            x=alt.X(
                "tokens:Q",
                title="tokens in the step",
                scale=alt.Scale(type="log", nice=False),
                axis=_ticks(TOKENS),
            ),
            y=alt.Y("times:Q", title="step time, times that of one token"),
            color=_colour("model:N", list(NAMES.values())),
        )
    )
    label = ridge.mark_text(text="ridge, dense", align="right", dx=-5, fontSize=12, color="#555").encode(
        y=alt.value(10)
    )
    return (line + ridge.mark_rule(strokeDash=[4, 3], color="#555") + label).properties(width=560, height=260)


def _frontier() -> Any:
    """Speed by depth, and the rate of the GPU against the time per token; one line per breadth."""
    import altair as alt

    breadths = (1, 8, 32, 64, 128, 256)
    rows = [
        {
            "sequences": str(b),
            "depth": k,
            "speed": gain(DENSE, b, k, 0.7),
            "rate": one.tokens_per_s,
            "ms": one.ms_per_token,
        }
        for b in breadths
        for k in range(DEEPEST + 1)
        for one in [round_of(DENSE, b, k, 0.7)]
    ]
    base = alt.Chart(_data(rows)).encode(
        color=_colour("sequences:N", [str(b) for b in breadths]), order="depth:Q"
    )
    speed = base.encode(
        x=alt.X("depth:Q", title="depth", axis=_ticks(range(DEEPEST + 1))),
        y=alt.Y("speed:Q", title="speed, times that of depth 0"),
    )
    none = alt.Chart(_data([{"one": 1}])).mark_rule(strokeDash=[4, 3], color="#555").encode(y="one:Q")
    rate = base.encode(
        x=alt.X(
            "ms:Q",
            title="ms per token, for each user (less is faster)",
            scale=alt.Scale(type="log", domain=[6, 100], nice=False),
            axis=_ticks((6, 10, 20, 40, 80)),
        ),
        y=alt.Y(
            "rate:Q",
            title="tokens per second of the GPU",
            scale=alt.Scale(type="log", nice=False, padding=14),
            axis=_ticks((100, 200, 500, 1000, 2000, 5000)),
        ),
    )
    marked = rate.transform_filter("datum.depth == 0 || datum.depth == 3 || datum.depth == 8")
    text = marked.mark_text(dy=-9, fontSize=11).encode(text=alt.Text("depth:Q"))
    return alt.hconcat(
        (none + _dotted(speed)).properties(width=270, height=270),
        (_dotted(rate) + text).properties(width=270, height=270),
    )


def _dotted(chart: Any) -> Any:
    return chart.mark_line() + chart.mark_point(filled=True, size=24, opacity=1)


def _depths() -> Any:
    import altair as alt

    grid = [*range(1, 33), *range(36, 257, 4)]
    rows = [
        {
            "model": NAMES[name].partition(",")[0],
            "acceptance": f"{a:g}",
            "sequences": b,
            "depth": best(name, b, a).depth,
        }
        for name in NAMES
        for a in (0.5, 0.7, 0.9)
        for b in grid
    ]
    return (
        alt.Chart(_data(rows))
        .mark_line(interpolate="step-after", strokeWidth=2)
        .encode(
            x=alt.X(
                "sequences:Q",
                title="sequences in the step",
                scale=alt.Scale(type="log", nice=False),
                axis=_ticks((1, 4, 16, 64, 256)),
            ),
            y=alt.Y("depth:Q", title="depth that is enough", axis=alt.Axis(tickMinStep=1)),
            color=_colour("acceptance:N", ["0.9", "0.7", "0.5"]),
        )
        .properties(width=260, height=220)
        .facet(
            facet=alt.Facet("model:N", title=None, sort=[n.partition(",")[0] for n in NAMES.values()]),
            columns=2,
        )
    )


def _waste() -> Any:
    import altair as alt

    rows = [
        {"what": what, "depth": k, "share": value}
        for k in range(1, DEEPEST + 1)
        for what, value in (
            ("kept", (emitted(k, 0.7) - 1)),
            ("wasted", k - (emitted(k, 0.7) - 1)),
        )
    ]
    return (
        alt.Chart(_data(rows))
        .mark_bar()
        .encode(
            x=alt.X("depth:O", title="depth", axis=alt.Axis(labelAngle=0)),
            y=alt.Y("share:Q", title="drafts per round, acceptance 0.7"),
            color=alt.Color(
                "what:N", title=None, scale=alt.Scale(domain=["kept", "wasted"], range=["#0072b2", "#d8dce2"])
            ),
            order=alt.Order("what:N"),
        )
        .properties(width=420, height=200)
    )


def _colour(field: str, domain: list[str]) -> Any:
    import altair as alt

    title = None if field == "model:N" else field.partition(":")[0]
    return alt.Color(
        field, title=title, sort=domain, scale=alt.Scale(domain=domain, range=list(COLOURS)[: len(domain)])
    )


def _ticks(values: Iterable[int]) -> Any:
    import altair as alt

    return alt.Axis(values=list(values), format="d")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    draw()
