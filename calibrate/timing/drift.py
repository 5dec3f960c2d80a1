"""Drift: how far the machine itself moved between the first and the last anchors of a campaign."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import exp, log
from statistics import fmean

Occasions = Mapping[str, Sequence[tuple[str, float]]]
"""Occasion -> (anchor, its median in microseconds), for every anchor measured then."""


def drift(occasions: Occasions) -> float:
    """The largest change between two occasions, as a share; 0 with fewer than two.

    Each anchor is compared with its own mean over all occasions (on logarithms), and the anchors
    of one occasion are averaged, so that noise of a single cell does not pass for drift. Anchors
    missing from an occasion do not count in it.
    """
    logs: dict[str, list[float]] = defaultdict(list)
    for anchors in occasions.values():
        for name, us in anchors:
            logs[name].append(log(us))
    level = {name: fmean(values) for name, values in logs.items()}
    offsets = [fmean(log(us) - level[name] for name, us in each) for each in occasions.values() if each]
    return exp(max(offsets) - min(offsets)) - 1 if len(offsets) > 1 else 0.0
