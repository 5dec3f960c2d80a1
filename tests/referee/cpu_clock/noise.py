"""How much the same step differs between recorded processes, and what that means for a metric.

The recordings have no run twice, but processes that took steps of the same shape (tokens,
sequences, depth, drafter loaded or not). The ratio of their median step times is noise, and in the
open loop its largest part: the machine was shared, and each process ran in its own minute.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import combinations
from typing import Final, NamedTuple

import numpy as np

from tests.referee.cpu_clock.costs import Prices
from tests.referee.cpu_clock.predict import Case
from tests.referee.cpu_clock.recordings import Columns, Recorded, select

FEWEST: Final = 5
CONTEXT: Final = 32
"""Mean context of an open-loop decode step: prompts of 8 to 24 and half of 16 to 48 tokens."""

Shape = tuple[int, int, int, bool]


class Pair(NamedTuple):
    """Two processes that took the same step, and the first's median time over the second's."""

    shape: Shape
    first: str
    second: str
    ratio: float


def pairs(recorded: Recorded) -> list[Pair]:
    """Every shape that two processes took at least ``FEWEST`` times each while only decoding."""
    times: dict[Shape, dict[str, float]] = defaultdict(dict)
    for kind, steps in (("clean", recorded.closed_steps), ("open", recorded.open_steps)):
        for config in dict.fromkeys(steps["config"].tolist()):
            about = recorded.configs[f"{kind}/{config}"]
            if about["prompt" if kind == "clean" else "n"] <= CONTEXT + 8:
                for shape, ms in _medians(select(steps, config=config), _drafts(about)).items():
                    times[shape][f"{kind}/{config}"] = ms
    return [
        Pair(shape, a, b, found[a] / found[b])
        for shape, found in sorted(times.items())
        for a, b in combinations(sorted(found), 2)
    ]


def _drafts(about: dict[str, object]) -> bool:
    return bool(about["spec"]) and about["spec"]["method"] == "draft_model"  # type: ignore[index]


def _medians(steps: Columns, drafts: bool) -> dict[Shape, float]:
    depth = steps.get("k_next", steps.get("nspec_next"))
    assert depth is not None
    found: dict[Shape, list[float]] = defaultdict(list)
    rows = zip(steps["T"], steps["B"], depth, steps["newreq"], steps["step_cpu_ms"], strict=True)
    for tokens, sequences, k, fresh, ms in rows:
        if not fresh:
            found[int(tokens), int(sequences), int(k), drafts].append(ms)
    return {shape: float(np.median(ms)) for shape, ms in found.items() if len(ms) >= FEWEST}


def step_noise(found: list[Pair]) -> float:
    """Standard deviation of a process's log step time, from pairs: each has the noise of two."""
    return float(np.sqrt(np.mean([np.log(pair.ratio) ** 2 for pair in found]) / 2))


def speed(recorded: Recorded, case: Case, prices: Prices) -> float:
    """Recorded over priced time of all steps of an open-loop run: its own speed, 1 if as calibrated."""
    steps = select(recorded.open_steps, config=case.process.split("/")[1], rate=case.load)
    drafts = case.config["spec"] is not None
    shapes = zip(*(steps[name].astype(int).tolist() for name in ("T", "B", "k_next", "newreq")), strict=True)
    priced = [prices.step_ms(t, b, k, drafts, 0.0 if new else CONTEXT * t) for t, b, k, new in shapes]
    return float(steps["step_cpu_ms"].sum() / sum(priced))
