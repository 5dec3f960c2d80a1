"""The map as plain data: axes, points that were simulated, and the boxes between them."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

At = tuple[float, ...]
"""One coordinate per axis, in the order of the axes."""
AxisName = Literal["load", "acceptance", "context", "output"]
Unit = Literal["/s", "share", "in flight", "", "tokens"]
AXIS_TITLES: Final[dict[str, str]] = {
    "load": "load",
    "acceptance": "acceptance of the first draft",
    "context": "prompt tokens, mean",
    "output": "output tokens, mean",
}


@dataclass(frozen=True)
class Axis:
    """One axis and its coarse values, rising.

    Loads are requests per second (``/s``), a ``share`` of what the replica takes without drafts at the
    lengths of the point, or requests ``in flight`` of a closed loop. Lengths and requests in flight
    are spaced, halved and interpolated by their logarithm.
    """

    name: AxisName
    unit: Unit
    values: tuple[float, ...]

    @property
    def log(self) -> bool:
        """Whether equal ratios are equal distances."""
        return self.unit in ("tokens", "in flight")

    @property
    def title(self) -> str:
        """What a picture writes beside the axis."""
        if self.name != "load":
            return AXIS_TITLES[self.name]
        words = {"/s": "requests per second", "share": "share of plain capacity"}
        return f"load, {words.get(self.unit, 'requests in flight')}"

    def place(self, value: float) -> float:
        """Where a value lies, in units in which distances count."""
        return math.log(value) if self.log else value

    def middle(self, low: float, high: float) -> float | None:
        """A value half-way between two, ``None`` if there is none that differs enough."""
        if not self.log:
            return round((low + high) / 2, 6)
        between = float(round(math.sqrt(low * high)))
        return between if low < between < high else None

    def text(self, value: float) -> str:
        """A value as a table writes it."""
        if self.unit == "share":
            return f"{100 * value:.3g} %"
        if self.unit == "in flight":
            return f"c={value:g}"
        return f"{value:.3g}/s" if self.unit == "/s" else f"{value:.6g}"


@dataclass(frozen=True)
class Figures:
    """One policy at one point, means over the seeds; NaN where the policy is ``unstable``.

    ``mean`` is the metric that decides, ``half`` the half width of its 95 % interval against the best
    policy of the point (0 for the best itself, NaN with one seed).
    """

    mean: float
    half: float
    depth: float
    breadth: float
    step_ms: float
    acceptance_length: float
    unstable: bool


@dataclass(frozen=True)
class Choice:
    """The best of some policies and those even with it; ``None`` and none where all are unstable.

    ``margin`` is what the best gains over ``over``, as a share: over the baseline if it is not the
    best itself, else over the next best. NaN where there is nothing to compare with.
    """

    best: str | None
    even: tuple[str, ...]
    margin: float
    margin_half: float
    over: str | None


@dataclass(frozen=True)
class Point:
    """One simulated point; ``depth`` is the choice among fixed depths alone.

    ``rate_per_s`` and ``context_tokens`` (half-way through an output) say what was served, whatever
    the axes are.
    """

    at: At
    policies: Mapping[str, Figures]
    policy: Choice
    depth: Choice
    rate_per_s: float
    context_tokens: float


@dataclass(frozen=True)
class Curve:
    """Time of a decode-only target pass: ``ms`` at ``tokens``, and what context adds.

    A pass of T tokens over n sequences of C context tokens takes ms(T) + C (n ``per_context_ms`` + T
    ``per_query_context_ms``), and C n ``per_wide_context_ms`` more where T > n. ``ridge`` is where tokens
    begin to cost, if it is known.
    """

    tokens: tuple[int, ...]
    ms: tuple[float, ...]
    per_context_ms: float
    per_query_context_ms: float
    per_wide_context_ms: float
    ridge: float | None


@dataclass(frozen=True)
class Map:
    """Points over axes; ``cells`` are the smallest boxes between them, as the numbers of their corners.

    A box's corners come in binary order, the last axis first: (low, low), (low, high), (high, low),
    (high, high). ``depths`` gives the label of each fixed depth, ``error`` the profile's stated
    relative error, within which policies are even.
    """

    about: Mapping[str, Any]
    metric: str
    error: float
    baseline: str
    axes: tuple[Axis, ...]
    policies: tuple[str, ...]
    depths: Mapping[int, str]
    points: tuple[Point, ...]
    cells: tuple[tuple[int, ...], ...]
    curve: Curve

    @property
    def widest(self) -> tuple[str, ...]:
        """The policies, those first that are best or even at most points; the baseline before all.

        Where several are even, maps show the first of them, so that chance draws no borders.
        """
        count = {label: sum(label in p.policy.even for p in self.points) for label in self.policies}
        return tuple(sorted(self.policies, key=lambda label: (label != self.baseline, -count[label])))

    def shown(self, even: Collection[str]) -> str | None:
        """The policy that a map shows where these are even; ``None`` for none."""
        return next((label for label in self.widest if label in even), None)

    def depth_of(self, label: str | None) -> int | None:
        """The fixed depth that a policy stands for."""
        return next((depth for depth, name in self.depths.items() if name == label), None)


@dataclass(frozen=True)
class Box:
    """A box between points; ``level`` counts how often it was halved."""

    low: At
    high: At
    level: int = field(default=0, compare=False)

    @property
    def corners(self) -> tuple[At, ...]:
        """All corners, low before high, the last axis fastest."""
        found: list[At] = [()]
        for ends in zip(self.low, self.high, strict=True):
            found = [(*each, end) for each in found for end in dict.fromkeys(ends)]
        return tuple(found)
