"""An ablation in words: figures of one mechanism, a sentence per policy, and how to read them."""

from __future__ import annotations

import math
from typing import Final

from sim.ablation.shares import Ablation, PolicyAblation, Share
from sim.ablation.variants import AS_IT_STANDS
from sim.results.compare import Difference
from sim.results.names import METRICS
from sim.results.terminal import number
from sim.results.words import percent

_EVEN: Final = ("no difference", "no data")
_NAMED: Final = 4
"""Most mechanisms that a sentence names."""


def counts(found: Difference | None) -> bool:
    """Whether a difference is one: outside the seeds' noise and the profile's error."""
    return found is not None and found.verdict not in _EVEN


def level(entry: PolicyAblation, metric: str) -> str:
    """The mean of a metric as the engine stands."""
    if entry.unstable(AS_IT_STANDS):
        return "unstable"
    values = [value for value in entry.values(AS_IT_STANDS, metric) if not math.isnan(value)]
    return number(sum(values) / len(values)) if values else "-"


def worth(found: Difference | None) -> str:
    """``+3.1 ± 0.4 %``; ``none`` where nothing changed, ``no difference (+0.2 %)`` within noise or error."""
    if found is None:
        return "unstable"
    if found.mean == 0:
        return "none"
    if found.verdict == "no difference" and not math.isnan(found.ratio):
        return f"no difference ({100 * (found.ratio - 1):+.1f} %)"
    return percent(found) if counts(found) else found.verdict


def part(share: Share) -> str:
    """A mechanism's share of all together, in brackets; empty where one of the two is no difference."""
    return f" ({100 * share.part:.0f} %)" if counts(share.difference) and not math.isnan(share.part) else ""


def sentence(entry: PolicyAblation, against: str, metric: str) -> str:
    """``off at 8/s: TPOT mean +4.0 ± 0.2 % against ideal: capture_sizes +3.9 %, ...``."""
    head = f"{entry.policy} at {entry.load}"
    if not entry.changes:
        return f"{head}: no mechanism differs from {against}."
    shares = entry.shares(metric)
    if shares.together is None:
        return f"{head}: unstable, so nothing can be told."
    label = METRICS[metric].label
    whole = f"{label} {worth(shares.together)} against {against}"
    felt = [(each.switch, each.difference) for each in shares.alone if counts(each.difference)]
    felt.sort(key=lambda each: -abs(each[1].mean) if each[1] else 0.0)
    named = ", ".join(f"{name} {worth(found)}" for name, found in felt[:_NAMED])
    more = f" and {len(felt) - _NAMED} more" if len(felt) > _NAMED else ""
    rest = (
        f"; beyond the sum of each {worth(shares.rest.difference)}" if counts(shares.rest.difference) else ""
    )
    return f"{head}: {whole}: {named or 'no single mechanism is felt'}{more}{rest}."


def footnote(ablation: Ablation) -> str:
    """How to read the figures: direction, seeds, interval, and what counts as no difference."""
    how = (
        f"Figures: the engine as it stands against the same with the mechanism as in {ablation.against}; "
        "+ says that the mechanism makes it larger; in brackets its share of all together"
    )
    if len(ablation.seeds) < 2:
        return f"{how}. One seed, so no interval: chance is not ruled out."
    noise = f"paired over {len(ablation.seeds)} seeds, ± 95 % interval; what is inside it is no difference"
    margin = (
        f", as is what is under {100 * ablation.error:.1f} % (the profile's error)" if ablation.error else ""
    )
    return f"{how}; {noise}{margin}."
