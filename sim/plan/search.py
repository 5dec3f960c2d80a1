"""The highest rate that meets the objective: bracketing, then bisection, on one set of seeds.

The same seed at another rate gives the same requests, closer together or farther apart (common
random numbers), so that rates differ by their load and not by their luck.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from sim.plan.probe import Probe

Trial = Callable[[float], Probe]
"""A rate in requests per second in, what it did out."""


@dataclass(frozen=True)
class Found:
    """The highest rate seen to meet the objective and the lowest seen not to; ``None``: none was."""

    holds: Probe | None
    fails: Probe | None


def highest(
    trial: Trial,
    start: float,
    factor: float,
    tolerance: float,
    limits: tuple[float, float],
    holds: Probe | None = None,
) -> Found:
    """Search from ``start`` by factors until a rate holds and one fails, then halve the gap.

    It ends when the two lie within ``tolerance`` of each other (0.03: three per cent), or when the
    rates leave ``limits``. ``holds`` is a trial that is known to hold, if any.
    """
    fails: Probe | None = None
    rate, (least, most) = start, limits
    while (holds is None or fails is None) and least <= rate <= most:
        tried = trial(rate)
        if tried.meets:
            holds, rate = tried, rate * factor
        else:
            fails, rate = tried, rate / factor
    while holds and fails and fails.rate_per_s > (1 + tolerance) * holds.rate_per_s:
        tried = trial(math.sqrt(holds.rate_per_s * fails.rate_per_s))
        holds, fails = (tried, fails) if tried.meets else (holds, tried)
    return Found(holds, fails)
