"""The comparison in plain words: per load, which policy to take and by how much."""

from __future__ import annotations

import math

from sim.results.compare import Best, Cell, Comparison, Difference, PolicyResult, against, best_policy
from sim.results.names import METRICS


def percent(difference: Difference) -> str:
    """Relative difference as ``+12.3 ± 0.8 %``, without the width when there is none."""
    change, width = 100 * (difference.ratio - 1), 100 * difference.ratio_half_width
    if math.isnan(change):
        return "-"
    digits = 0 if abs(change) >= 100 else 1
    text = f"{change:+.{digits}f}"
    return f"{text} %" if math.isnan(width) else f"{text} ± {width:.{digits}f} %"


def verdict(cell: Cell, comparison: Comparison) -> str:
    """One sentence or two for one load, for example ``2/s: off is best; goodput is 3 % slower``."""
    best = best_policy(cell, comparison.metric, comparison.error)
    sentences = [_choice(cell, comparison, best), _unstable(cell, best), _bounds(cell, comparison)]
    text = ". ".join(sentence for sentence in sentences if sentence)
    return f"{cell.load}: {text}."


def footnote(comparison: Comparison) -> str:
    """What the numbers stand on: seeds, interval, and the profile's error if one is stated."""
    counts = [len(cell.policies[0].runs) for cell in comparison.cells] or [0]
    fewest, most = min(counts), max(counts)
    label = METRICS[comparison.metric].label
    against_baseline = f"Δ {label} against {comparison.baseline}"
    if most < 2:
        return f"{against_baseline}; one seed, so no interval: chance is not ruled out"
    seeds = f"{most}" if fewest == most else f"{fewest} to {most}"
    text = f"{against_baseline}: paired over {seeds} seeds, ± 95 % interval"
    margin = f"; under {_share(comparison.error)} (the profile's error) is no difference"
    return text + margin if comparison.error else text


def _choice(cell: Cell, comparison: Comparison, best: Best) -> str:
    """The recommendation, with its gain over the baseline or the others' loss against it."""
    if best.label is None:
        return _no_choice(cell)
    head = f"{best.label} is best" if len(best.even) == 1 else f"no difference between {_list(best.even)}"
    if comparison.baseline not in best.even:
        gain = _gain(cell, comparison, best.label)
        return f"{head}: {gain}" if gain else head
    losses = _losses(cell, comparison, best)
    return f"{head}; {losses}" if losses else head


def _no_choice(cell: Cell) -> str:
    if not all(policy.unstable for policy in cell.policies):
        return "no policy has data to compare"
    reasons = [f"{p.label}: {run.stability.reason}" for p in cell.policies for run in p.runs if run.unstable]
    return f"no policy is stable (under {reasons[0]})"


def _gain(cell: Cell, comparison: Comparison, label: str) -> str:
    """``TPOT mean -31.0 ± 2.0 % against off``; empty if the baseline is unstable."""
    found = _differences(cell, comparison, comparison.baseline)[label]
    if found is None or found.verdict == "no data":
        return ""
    return f"{METRICS[comparison.metric].label} {percent(found)} against {comparison.baseline}"


def _losses(cell: Cell, comparison: Comparison, best: Best) -> str:
    """What the policies outside the best group lose against its best."""
    losers = {
        label: found
        for label, found in _differences(cell, comparison, str(best.label)).items()
        if found is not None and label not in best.even and not cell.policy(label).bound
    }
    known = {label: abs(found.ratio - 1) for label, found in losers.items() if not math.isnan(found.ratio)}
    if not known:
        return ""
    worse = "slower" if METRICS[comparison.metric].unit == "ms" else "worse"
    if len(known) <= 2:
        return " and ".join(f"{label} is {_share(loss)} {worse}" for label, loss in known.items())
    return f"the others are {_share(min(known.values()))} to {_share(max(known.values()))} {worse}"


def _unstable(cell: Cell, best: Best) -> str:
    labels = [policy.label for policy in cell.policies if policy.unstable]
    text = f"Unstable: {_list(labels)}" if labels and len(labels) < len(cell.policies) else ""
    ahead = [p for p in cell.policies if p.unstable and not p.bound and p.in_system > 0]
    if best.label and any(p.in_system < cell.policy(best.label).in_system for p in ahead):
        text += f", some of them with fewer requests waiting than {best.label}: send more requests to tell"
    partly = [
        f"{policy.label} under {policy.unstable_seeds} of {len(policy.runs)} seeds, left out"
        for policy in cell.policies
        if policy.unstable_seeds and not policy.unstable
    ]
    return ". ".join(filter(None, [text, f"Unstable {_list(partly)}" if partly else ""]))


def _bounds(cell: Cell, comparison: Comparison) -> str:
    """How far a clairvoyant policy gets, as the limit of what any policy could."""
    found = _differences(cell, comparison, comparison.baseline)
    parts = [_bound(policy, found[policy.label]) for policy in cell.policies if policy.bound]
    return ", ".join(part for part in parts if part)


def _bound(policy: PolicyResult, difference: Difference | None) -> str:
    return f"Bound: {policy.label} {percent(difference)}" if difference else ""


def _differences(cell: Cell, comparison: Comparison, baseline: str) -> dict[str, Difference | None]:
    found = against(cell, baseline, comparison.metric, comparison.error)
    return dict(zip((policy.label for policy in cell.policies), found, strict=True))


def _share(value: float) -> str:
    return f"{100 * value:.{0 if value >= 1 else 1}f} %"


def _list(labels: tuple[str, ...] | list[str]) -> str:
    return labels[0] if len(labels) == 1 else f"{', '.join(labels[:-1])} and {labels[-1]}"
