"""The axes of a map: what the user asked for, and values of our own where nothing is said."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sim.errors import InputError
from sim.map.acceptance import mean_rate
from sim.map.model import Axis, AxisName, Unit
from sim.map.place import Place
from sim.map.runs import MOST_CLIENTS, capacity_per_s
from sim.scenario.estimate import Load, load_of
from sim.scenario.model import Scenario
from sim.scenario.words import did_you_mean
from sim.workload.arrival_config import ClosedArrival

NAMES: tuple[AxisName, ...] = ("load", "acceptance", "context", "output")
DEFAULT_POINTS = 6
EXPLORE_POINTS = {"load": 5, "acceptance": 4, "context": 3, "output": 3}
_ACCEPTANCE = (0.3, 0.9)
_SHARES = (0.1, 0.9)
_FACTORS = {"context": (0.25, 4.0), "output": (0.5, 2.0)}


@dataclass(frozen=True)
class Wanted:
    """One axis as asked for; ``share`` reads loads as shares of the plain capacity."""

    name: AxisName
    low: float | None = None
    high: float | None = None
    points: int = DEFAULT_POINTS
    share: bool = False


def wanted_axes(
    names: Sequence[str], ends: dict[str, tuple[str, str]], points: dict[str, int]
) -> list[Wanted]:
    """Axes by name with their ends as written, such as ``2/s``, ``80%`` or ``0.4``; every error at once."""
    problems = [
        f"--over: no axis is called {name!r}{did_you_mean(name, NAMES)}"
        for name in names
        if name not in NAMES
    ]
    problems += [f"--over: {name} is named twice" for name in dict.fromkeys(names) if names.count(name) > 1]
    stray = {name for name in (*ends, *points) if name not in names}
    problems += [f"--from, --to, --points: {name} is not among the axes of --over" for name in sorted(stray)]
    found = []
    for name in NAMES if not problems else ():
        if name in names:
            low, high = ends.get(name, ("", ""))
            try:
                found.append(_wanted(name, low, high, points.get(name, DEFAULT_POINTS)))
            except ValueError as error:
                problems.append(f"{name}: {error}")
    if problems:
        raise InputError("\n".join(problems))
    order = {name: i for i, name in enumerate(names)}
    return sorted(found, key=lambda each: order[each.name])


def _wanted(name: AxisName, low: str, high: str, points: int) -> Wanted:
    if points < 1:
        raise ValueError(f"{points} points; take 1 or more")
    ends = [_number(text) for text in (low, high) if text]
    share = any(text.endswith("%") for text in (low, high))
    if name != "load" and share:
        raise ValueError("only a load may be given in %, as a share of the plain capacity")
    if share and not all(text.endswith("%") for text in (low, high) if text):
        raise ValueError(f"{low} and {high}: give both ends in %, or neither")
    if any(value <= 0 for value in ends) and name != "acceptance":
        raise ValueError("values must be above 0")
    if name == "acceptance" and any(not 0 <= value <= 1 for value in ends):
        raise ValueError("acceptance is a share from 0 to 1")
    if len(ends) == 2 and not ends[0] < ends[1] and points > 1:
        raise ValueError(f"--from {low} is not below --to {high}")
    return Wanted(name, _number(low) if low else None, _number(high) if high else None, points, share)


def _number(text: str) -> float:
    bare = text.removesuffix("%").removesuffix("/s")
    try:
        value = float(bare)
    except ValueError:
        raise ValueError(f"{text!r} is no number; write 4, 4/s, 80% or 0.6") from None
    if not math.isfinite(value):
        raise ValueError(f"{text!r} is no number; write 4, 4/s, 80% or 0.6")
    return value / 100 if text.endswith("%") else value


@dataclass
class Traffic:
    """What the scenario's requests are like, and what a replica takes of them; capacities are kept."""

    scenario: Scenario
    seed: int

    def __post_init__(self) -> None:
        self.load: Load = load_of(self.scenario.workload, self.scenario.locate)
        self._capacity: dict[tuple[float, float], float] = {}

    @property
    def closed(self) -> bool:
        """Whether the load is a number of requests in flight."""
        return isinstance(self.scenario.workload.arrival, ClosedArrival)

    def capacity_per_s(self, prompts: float = 1.0, outputs: float = 1.0) -> float:
        """Requests per second of plain decoding with lengths at these factors."""
        if (prompts, outputs) not in self._capacity:
            place = Place(1, prompts=prompts, outputs=outputs)
            self._capacity[prompts, outputs] = capacity_per_s(self.scenario, place, self.seed)
        return self._capacity[prompts, outputs]


def axes_of(traffic: Traffic, wanted: Sequence[Wanted]) -> tuple[Axis, ...]:
    """The axes with their coarse values; raises ``InputError`` where one does not fit the scenario."""
    names = [each.name for each in wanted]
    if "acceptance" in names:
        for config in traffic.scenario.acceptances:
            if config is not None:
                mean_rate(config)
    return tuple(_axis(traffic, each, names) for each in wanted)


def _axis(traffic: Traffic, wanted: Wanted, names: Sequence[str]) -> Axis:
    if wanted.name == "load":
        return _load_axis(traffic, wanted, "context" in names or "output" in names)
    if wanted.name == "acceptance":
        low, high = _ends(wanted, _ACCEPTANCE)
        return Axis("acceptance", "", _linear(low, high, wanted.points))
    return _length_axis(traffic, wanted)


def _load_axis(traffic: Traffic, wanted: Wanted, lengths_vary: bool) -> Axis:
    if traffic.closed:
        if wanted.share:
            raise InputError("load: a closed loop has no rate; give requests in flight, as in --to load=64")
        most = min(traffic.scenario.engine.max_num_seqs, MOST_CLIENTS)
        return _log_axis("load", "in flight", *_ends(wanted, (1, most)), wanted.points)
    given = wanted.low is not None or wanted.high is not None
    if lengths_vary and (wanted.share or not given):
        return Axis("load", "share", _linear(*_ends(wanted, _SHARES), wanted.points))
    capacity = traffic.capacity_per_s()
    if wanted.share:
        low, high = (value * capacity for value in _ends(wanted, _SHARES))
    else:
        low, high = _ends(wanted, (_SHARES[0] * capacity, _SHARES[1] * capacity))
    return Axis("load", "/s", tuple(float(f"{rate:.3g}") for rate in _linear(low, high, wanted.points)))


def _length_axis(traffic: Traffic, wanted: Wanted) -> Axis:
    mean = traffic.load.prompt_tokens if wanted.name == "context" else traffic.load.output_tokens
    low, high = _FACTORS[wanted.name]
    longest = traffic.scenario.engine.max_model_len / 2
    return _log_axis(
        wanted.name, "tokens", *_ends(wanted, (mean * low, min(mean * high, longest))), wanted.points
    )


def _log_axis(name: AxisName, unit: Unit, low: float, high: float, points: int) -> Axis:
    values = np.geomspace(low, high, points) if points > 1 else [low]
    return Axis(name, unit, tuple(dict.fromkeys(float(max(1, round(value))) for value in values)))


def _ends(wanted: Wanted, default: tuple[float, float]) -> tuple[float, float]:
    low = default[0] if wanted.low is None else wanted.low
    high = default[1] if wanted.high is None else wanted.high
    if low >= high and wanted.points > 1:
        raise InputError(f"{wanted.name}: from {low:.4g} to {high:.4g} is no range; give --from and --to")
    return low, high


def _linear(low: float, high: float, points: int) -> tuple[float, ...]:
    return tuple(round(float(value), 6) for value in np.linspace(low, high, points)) if points > 1 else (low,)
