"""The verdict per range of loads: neighbouring loads at which one policy is among the best are one range.

Which policies are best or even is ``compare.best_policy``'s judgement alone; here it is only put
together.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

from sim.report.layout import Layout, Place
from sim.results.compare import Best, Comparison, Difference, against, best_policy
from sim.results.names import METRICS
from sim.results.words import percent

_MOST_NAMED: Final = 4


@dataclass(frozen=True)
class Range:
    """Neighbouring loads with the policies that are best, or even with the best, at each of them."""

    places: tuple[Place, ...]
    best: tuple[Best, ...]
    shared: tuple[str, ...]

    def choice(self, baseline: str) -> str | None:
        """The policy to take: the baseline if it is as good as any, else the most often best."""
        if baseline in self.shared:
            return baseline
        counts = Counter(best.label for best in self.best)
        return max(self.shared, key=lambda label: counts[label], default=None)


def ranges(places: tuple[Place, ...], comparison: Comparison) -> list[Range]:
    """Loads from low to high in as few ranges as a policy shared by each allows, taken greedily."""
    found: list[Range] = []
    for place in places:
        best = best_policy(place.compared, comparison.metric, comparison.error)
        last = found[-1] if found else None
        shared = tuple(label for label in last.shared if label in best.even) if last else ()
        if last is not None and (shared or (not last.shared and not best.even)):
            found[-1] = Range((*last.places, place), (*last.best, best), shared)
        else:
            found.append(Range((place,), (best,), best.even))
    return found


def sentences(layout: Layout, comparison: Comparison) -> tuple[str, ...]:
    """One sentence per range of loads of every setting."""
    found = []
    for setting in layout.settings:
        prefix = f"{setting}: " if setting and len(layout.settings) > 1 else ""
        parts = ranges(layout.of(setting), comparison)
        found += [prefix + _sentence(part, i, len(parts), comparison) for i, part in enumerate(parts)]
    return tuple(found)


def _sentence(part: Range, index: int, count: int, comparison: Comparison) -> str:
    where = _where(part, index, count)
    choice = part.choice(comparison.baseline)
    if choice is None:
        return f"{where}, {_no_choice(part)}."
    if all(_candidates(place) == {choice} for place in part.places):
        return f"{where}, {choice} is the only policy to choose from: there is nothing to compare it with."
    if choice == comparison.baseline:
        return f"{where}, use {choice}{_nothing_better(part, choice, comparison)}."
    even = _even(part, choice)
    return f"{where}, use {choice}: {_gains(part, choice, comparison)}{even}."


def _no_choice(part: Range) -> str:
    """Why no policy can be taken: there is none but a bound, none has data, or none is stable."""
    candidates = [p for place in part.places for p in place.compared.policies if not p.bound]
    if not candidates:
        return "only a bound was simulated; add a policy"
    if not all(policy.unstable for policy in candidates):
        return "no policy has data to compare"
    return "no policy is stable: the load is more than this replica serves"


def _candidates(place: Place) -> set[str]:
    """Policies that could be taken: all but bounds."""
    return {policy.label for policy in place.compared.policies if not policy.bound}


def _where(part: Range, index: int, count: int) -> str:
    first, last = part.places[0].load, part.places[-1].load
    if count == 1:
        return "At every load" if len(part.places) > 1 else ("Here" if first == "base" else f"At {first}")
    if index == 0:
        return f"Up to {last}"
    if index == count - 1:
        return f"From {first} on"
    return f"At {first}" if first == last else f"From {first} to {last}"


def _nothing_better(part: Range, choice: str, comparison: Comparison) -> str:
    """Why the baseline: it is the best, or nothing beats it by more than chance and error."""
    alone = all(best.even == (choice,) for best in part.best)
    if alone:
        return ": every other policy is worse"
    margin = f" and the profile's error of {100 * comparison.error:.0f} %" if comparison.error else ""
    return f": no policy is better beyond chance{margin}"


def _gains(part: Range, choice: str, comparison: Comparison) -> str:
    """``TPOT mean -31.0 ± 2.0 % against off``, or from the smallest gain to the largest."""
    pairs = [(place, _gain(place, choice, comparison)) for place in part.places]
    known = [(place, found) for place, found in pairs if found is not None and found.verdict != "no data"]
    metric = METRICS[comparison.metric].label
    if not known:
        return f"{comparison.baseline} is unstable there"
    low, high = (pick(known, key=lambda each: abs(each[1].ratio - 1)) for pick in (min, max))
    if low is high:
        return f"{metric} {percent(low[1])} against {comparison.baseline}"
    ends = f"{percent(low[1])} (at {low[0].load}) to {percent(high[1])} (at {high[0].load})"
    return f"{metric} {ends} against {comparison.baseline}"


def _gain(place: Place, choice: str, comparison: Comparison) -> Difference | None:
    labels = [policy.label for policy in place.compared.policies]
    found = against(place.compared, comparison.baseline, comparison.metric, comparison.error)
    return found[labels.index(choice)]


def _even(part: Range, choice: str) -> str:
    others = [label for label in part.shared if label != choice]
    if not others:
        return ""
    if len(others) > _MOST_NAMED:
        return f"; no difference from {len(others)} others (load by load below)"
    names = others[0] if len(others) == 1 else f"{', '.join(others[:-1])} and {others[-1]}"
    return f"; no difference from {names}"
