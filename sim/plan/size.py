"""How many replicas the peak takes: fleets of more or fewer are simulated whole, none is divided."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from sim.plan.probe import Probe
from sim.plan.search import highest

FleetTrial = Callable[[float, int], Probe]
"""A rate and a number of replicas in, what the fleet did out."""

TOLERANCE: Final = 0.05
"""How closely the highest rate of a whole fleet is found; it only tells the headroom."""
_STEP: Final = 1.15
_TOO_MANY: Final = 4
"""Times the number that division would give: beyond it no number of replicas helps."""


@dataclass(frozen=True)
class Size:
    """The smallest fleet that meets the objective at the peak, and its highest rate.

    ``smaller`` is what one replica less did, ``None`` for a fleet of one; ``highest_per_s`` is at
    least the peak.
    """

    replicas: int
    at_peak: Probe
    smaller: Probe | None
    highest_per_s: float

    @property
    def headroom(self) -> float:
        """Share by which the load may rise above the peak."""
        return self.highest_per_s / self.at_peak.rate_per_s - 1


def size(trial: FleetTrial, peak_per_s: float, one_per_s: float) -> Size | None:
    """The smallest fleet for the peak; ``one_per_s`` is the highest rate of a replica that is alone.

    The search begins where division would end, goes up until a fleet holds, and down while one
    replica less still does. ``None`` if even four times that number misses.
    """
    begin = max(1, math.ceil(peak_per_s / one_per_s))
    number, smaller = begin, None
    tried = trial(peak_per_s, number)
    while not tried.meets:
        if number >= _TOO_MANY * begin:
            return None
        number, smaller = number + 1, tried
        tried = trial(peak_per_s, number)
    while number > 1 and smaller is None:
        less = trial(peak_per_s, number - 1)
        if less.meets:
            number, tried = number - 1, less
        else:
            smaller = less
    return Size(number, tried, smaller, _highest(trial, tried, number, one_per_s))


def _highest(trial: FleetTrial, at_peak: Probe, replicas: int, one_per_s: float) -> float:
    """Highest rate of the whole fleet; that of a single replica is known."""
    peak = at_peak.rate_per_s
    if replicas == 1:
        return max(one_per_s, peak)
    start = max(_STEP * peak, replicas * one_per_s)
    found = highest(
        lambda rate: trial(rate, replicas), start, _STEP, TOLERANCE, (peak, 16 * start), holds=at_peak
    )
    return found.holds.rate_per_s if found.holds else peak
