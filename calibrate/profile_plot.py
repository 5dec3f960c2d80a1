"""A picture of a profile: what a verify pass takes over its tokens, measured against the fit (SVG).

Both axes are logarithmic. *Depth* is one sequence with n tokens, *breadth* n sequences with one each.
The ridge is where the part that grows with tokens equals the floor.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import NamedTuple

from calibrate.compose.evaluate import decode_shape, pass_ns, term_ns
from calibrate.profile import Profile, Term
from calibrate.profile_view import device_name

WIDTH, HEIGHT = 920, 580
LEFT, RIGHT, TOP, BOTTOM = 76, 140, 84, 64
DEPTH, BREADTH, MIXED, PART = "#1f6fb2", "#d1651a", "#7a6a8a", "#5f7d5a"
INK, SOFT, GRID = "#1d2733", "#5b6673", "#e6e9ed"
LARGEST = 2048
CONTEXT = 1024
TICKS = (1, 1.5, 2, 3, 5, 7)
AXIS = "n, tokens in the step (breadth: n sequences of one token; depth: one sequence of n tokens)"


class Dot(NamedTuple):
    """A measured time: tokens, ms, its interval in ms, and colour."""

    tokens: float
    ms: float
    low: float
    high: float
    colour: str


class Line(NamedTuple):
    """A curve of the profile: its label, colour, points (tokens, ms) and dash pattern."""

    label: str
    colour: str
    points: tuple[tuple[float, float], ...]
    dash: str = ""


@dataclass(frozen=True)
class Axes:
    """Log-log mapping of tokens and ms to the page."""

    x: tuple[float, float]
    y: tuple[float, float]

    def at(self, tokens: float, ms: float) -> tuple[float, float]:
        """Page coordinates of a point."""
        across = _share(tokens, self.x) * (WIDTH - LEFT - RIGHT)
        up = _share(ms, self.y) * (HEIGHT - TOP - BOTTOM)
        return round(LEFT + across, 1), round(HEIGHT - BOTTOM - up, 1)


def _share(value: float, span: tuple[float, float]) -> float:
    return math.log(value / span[0]) / math.log(span[1] / span[0])


def plot(profile: Profile, context: int | None = None) -> str:
    """The picture as SVG text; ``context`` by default what most cells were measured at."""
    at = _context(profile) if context is None else context
    top = max(2, min(profile.max_tokens, LARGEST))
    dots, lines = _dots(profile, at, top), _lines(profile, at, top)
    values = [ms for line in lines for _, ms in line.points] + [dot.ms for dot in dots]
    axes = Axes((1.0, float(top)), (_below(min(values)), max(values) * 1.25))
    body = [*_frame(axes), *_ridge(profile, axes, top), *_curves(lines, axes), *_points(dots, axes)]
    note = _note(profile, dots, at)
    return "\n".join([_opening(profile), *_title(profile, note), *body, *_labels(lines, axes), "</svg>", ""])


def _context(profile: Profile) -> int:
    seen = Counter(measured.cell.context for measured in profile.cells if measured.cell.pass_ == "verify")
    return seen.most_common(1)[0][0] if seen else CONTEXT


def _grid(part: Term | None, top: int) -> list[int]:
    """Whole tokens, even on a log axis, and the points of the largest curve with their left neighbours."""
    steps = 160
    even = {round(top ** (i / steps)) for i in range(steps + 1)}
    curve = part.curve.x if part is not None and part.curve is not None else ()
    edges = {n for x in curve for n in (x, x + 1) if 1 <= n <= top}
    return sorted(even | edges)


def _lines(profile: Profile, context: int, top: int) -> list[Line]:
    verify, part = profile.target.verify, _largest(profile)
    grid = _grid(part, top)
    window = profile.target.work.window_tokens
    breadth = tuple((n, pass_ns(verify, decode_shape(n, context, 1, window)) / 1e6) for n in grid)
    depth = tuple((n, pass_ns(verify, decode_shape(1, context, n, window)) / 1e6) for n in grid)
    lines = [Line("breadth", BREADTH, breadth), Line("depth", DEPTH, depth)]
    if breadth == depth:
        lines = [Line("verify pass", DEPTH, depth)]
    if part is not None and len(verify) > 1:
        ms = tuple((n, max(1e-9, term_ns(part, decode_shape(n, 0)) / 1e6)) for n in grid)
        lines.append(Line(part.name, PART, ms, "5 3"))
    return lines


def _largest(profile: Profile) -> Term | None:
    """The curve over tokens that makes up most of the pass."""
    curves = [term for term in profile.target.verify if term.curve and term.curve.over == "tokens"]
    shape = decode_shape(64, 0)
    return max(curves, key=lambda term: term_ns(term, shape), default=None)


def _dots(profile: Profile, context: int, top: int) -> list[Dot]:
    """Measured cells at this context, else whole steps (undrafted ones first), else the largest curve."""
    cells = [m for m in profile.cells if m.cell.pass_ == "verify" and m.cell.context == context]
    if cells:
        return [
            Dot(m.cell.tokens, m.median_us / 1e3, m.ci_us[0] / 1e3, m.ci_us[1] / 1e3, _colour(m.cell))
            for m in cells
            if m.cell.tokens <= top
        ]
    whole = [s for s in profile.samples if s.op == "step"]
    plain = [s for s in whole if s.shape.get("depth", 0) == 0]
    steps = [(s.shape.get("tokens"), s.us / 1e3) for s in plain or whole]
    if steps:
        return [Dot(n, ms, ms, ms, MIXED) for n, ms in steps if isinstance(n, int) and 1 <= n <= top]
    return _curve_dots(_largest(profile), top)


def _colour(cell: object) -> str:
    sequences, width = getattr(cell, "sequences", 0), getattr(cell, "width", 0)
    if width == 1:
        return BREADTH
    return DEPTH if sequences == 1 else MIXED


def _curve_dots(term: Term | None, top: int) -> list[Dot]:
    if term is None or term.curve is None or term.mark not in ("measured", "composed"):
        return []
    points = zip(term.curve.x, term.curve.ns, strict=True)
    return [Dot(x, ns / 1e6, ns / 1e6, ns / 1e6, PART) for x, ns in points if 1 <= x <= top and ns > 0]


def _note(profile: Profile, dots: Sequence[Dot], context: int) -> str:
    base = f"context {context:,} tokens"
    if not any(name.endswith("context_tokens") for term in profile.target.verify for name in term.per_ns):
        base = "context of the steps"
    if profile.error is not None:
        base += f" · stated error ±{profile.error.relative:.0%}"
    if not dots:
        return f"{base} · nothing measured"
    if dots[0].colour == PART:
        return f"{base} · dots: sums of measured kernels"
    return f"{base} · dots: {len(dots)} measured steps"


def _opening(profile: Profile) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        f'height="{HEIGHT}" font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif" '
        f'role="img" aria-label="verify pass of {escape(profile.name)} over tokens">\n'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>'
    )


def _title(profile: Profile, note: str) -> Iterator[str]:
    what = f"{profile.target.work.name} on {device_name(profile)}"
    yield _text(LEFT, 34, f"One verify pass: {what}", 18, INK, weight=600)
    yield _text(LEFT, 56, f"{profile.name} · {profile.kind} · {note}", 13, SOFT)


def _text(
    x: float, y: float, words: str, size: int, colour: str, anchor: str = "start", weight: int = 400
) -> str:
    return (
        f'<text x="{x}" y="{y}" font-size="{size}" fill="{colour}" text-anchor="{anchor}" '
        f'font-weight="{weight}">{escape(words)}</text>'
    )


def _frame(axes: Axes) -> Iterator[str]:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    for tokens in _powers(axes.x):
        x, _ = axes.at(tokens, axes.y[0])
        yield f'<line x1="{x}" y1="{TOP}" x2="{x}" y2="{bottom}" stroke="{GRID}"/>'
        yield _text(x, bottom + 19, f"{tokens:,.0f}", 12, SOFT, "middle")
    for ms in _ticks(axes.y):
        _, y = axes.at(axes.x[0], ms)
        yield f'<line x1="{LEFT}" y1="{y}" x2="{right}" y2="{y}" stroke="{GRID}"/>'
        yield _text(LEFT - 9, y + 4, f"{ms:g}", 12, SOFT, "end")
    yield f'<line x1="{LEFT}" y1="{bottom}" x2="{right}" y2="{bottom}" stroke="{SOFT}"/>'
    yield _text((LEFT + right) / 2, HEIGHT - 18, AXIS, 13, INK, "middle")
    yield (
        f'<text transform="translate(24 {(TOP + bottom) / 2}) rotate(-90)" font-size="13" fill="{INK}" '
        'text-anchor="middle">time of the pass, ms</text>'
    )


def _powers(span: tuple[float, float]) -> list[float]:
    """Powers of two inside ``span``."""
    return [2.0**i for i in range(int(math.log2(span[1])) + 1)]


def _ticks(span: tuple[float, float]) -> list[float]:
    low, high = math.floor(math.log10(span[0])), math.ceil(math.log10(span[1]))
    every = [step * 10.0**power for power in range(low, high + 1) for step in TICKS]
    return [value for value in every if span[0] <= value <= span[1]]


def _below(value: float) -> float:
    """A round number below ``value`` for the axis to start at."""
    return max(tick for tick in _ticks((value / 20, value * 0.95)))


def _ridge(profile: Profile, axes: Axes, top: int) -> Iterator[str]:
    ridge = profile.ridge_tokens
    if ridge is None or not 1 < ridge < top:
        return
    x, _ = axes.at(ridge, axes.y[0])
    yield (
        f'<line x1="{x}" y1="{TOP}" x2="{x}" y2="{HEIGHT - BOTTOM}" stroke="{SOFT}" stroke-dasharray="2 4" '
        'stroke-width="1.5"/>'
    )
    yield _text(x, TOP - 8, f"ridge ≈ {_rounded(ridge):,} tokens", 12, SOFT, "middle", 600)


def _rounded(value: float) -> int:
    return 10 * round(value / 10) if value >= 100 else round(value)


def _curves(lines: Iterable[Line], axes: Axes) -> Iterator[str]:
    for line in lines:
        path = " ".join(f"{x},{y}" for x, y in (axes.at(*point) for point in _seen(line, axes)))
        dash = f' stroke-dasharray="{line.dash}"' if line.dash else ""
        width = 1.5 if line.dash else 2.5
        yield (
            f'<polyline points="{path}" fill="none" stroke="{line.colour}" stroke-width="{width}" '
            f'stroke-linejoin="round"{dash}/>'
        )


def _seen(line: Line, axes: Axes) -> list[tuple[float, float]]:
    return [point for point in line.points if axes.y[0] <= point[1] <= axes.y[1]]


def _points(dots: Iterable[Dot], axes: Axes) -> Iterator[str]:
    for dot in dots:
        x, y = axes.at(dot.tokens, dot.ms)
        if dot.high > dot.low > 0:
            low, high = axes.at(dot.tokens, dot.low)[1], axes.at(dot.tokens, dot.high)[1]
            yield f'<line x1="{x}" y1="{low}" x2="{x}" y2="{high}" stroke="{dot.colour}"/>'
        yield (
            f'<circle cx="{x}" cy="{y}" r="3.2" fill="{dot.colour}" fill-opacity="0.85" stroke="#ffffff" '
            'stroke-width="0.8"/>'
        )


def _labels(lines: Sequence[Line], axes: Axes) -> Iterator[str]:
    """Names at the right end of their lines, pushed apart where they would touch."""
    ends = sorted((axes.at(*_seen(line, axes)[-1])[1], line) for line in lines if _seen(line, axes))
    last = 0.0
    for y, line in ends:
        last = max(y + 4, last + 16)
        yield _text(WIDTH - RIGHT + 10, round(last, 1), line.label, 12, line.colour, weight=600)
