"""An ablation in words: figures of one mechanism, a sentence per policy, and how to read them."""

from __future__ import annotations

import math
from typing import Final

from sim.ablation.shares import SHOWN, Ablation, PolicyAblation, Share
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


def felt(entry: PolicyAblation) -> list[str]:
    """The mechanisms that change a shown metric, the largest relative change first, unstable ones before.

    None of an engine that is unstable as it stands: there is nothing to compare with.
    """
    sizes = {name: max(map(_size, found)) for name, found in _alone(entry).items() if any(map(_felt, found))}
    return sorted(sizes, key=lambda name: -sizes[name])


def unfelt(entry: PolicyAblation) -> str:
    """The other mechanisms in a sentence or two: those that change nothing, and those within the noise."""
    if entry.changes and entry.unstable(AS_IT_STANDS):
        return "Unstable as it stands, so that no mechanism can be told apart."
    shown = set(felt(entry))
    rest = {name: found for name, found in _alone(entry).items() if name not in shown}
    idle = [name for name, found in rest.items() if all(each and each.mean == 0 for each in found)]
    noise = [name for name in rest if name not in idle]
    said = (
        f"These change nothing here: {', '.join(idle)}." if idle else "",
        f"Within the seeds' noise or the profile's error: {', '.join(noise)}." if noise else "",
    )
    return " ".join(filter(None, said))


def _alone(entry: PolicyAblation) -> dict[str, list[Difference | None]]:
    """Every mechanism's differences, one per shown metric; empty where nothing can be compared."""
    if entry.unstable(AS_IT_STANDS):
        return {}
    found = [entry.shares(metric).alone for metric in SHOWN]
    return {each[0].switch: [share.difference for share in each] for each in zip(*found, strict=True)}


def _felt(found: Difference | None) -> bool:
    return found is None or (counts(found) and found.mean != 0)


def _size(found: Difference | None) -> float:
    if found is None:
        return math.inf
    return abs(found.ratio - 1) if counts(found) and not math.isnan(found.ratio) else 0.0


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
