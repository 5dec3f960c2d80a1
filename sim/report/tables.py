"""The comparison as tables of text, one per load."""

from __future__ import annotations

import math
from typing import Final

from sim.report.compare_charts import axis_title
from sim.report.layout import Layout, Place
from sim.report.model import Table
from sim.results.compare import Comparison, PolicyResult, against, best_policy
from sim.results.names import METRICS
from sim.results.terminal import number
from sim.results.words import footnote, percent

SHOWN: Final = (
    "ttft_p50_ms",
    "ttft_p99_ms",
    "tpot_mean_ms",
    "tpot_p99_ms",
    "e2el_mean_ms",
    "output_tokens_per_s",
    "goodput_per_s",
    "acceptance_length",
    "draft_waste_share",
    "depth_mean",
    "batch_mean",
    "step_mean_ms",
    "busy_share",
)


def load_tables(layout: Layout, comparison: Comparison) -> tuple[Table, ...]:
    """Means of every policy at every load, with its paired difference from the baseline."""
    return tuple(_table(place, comparison) for place in layout.places)


def _table(place: Place, comparison: Comparison) -> Table:
    policies = place.compared.policies
    names = [n for n in SHOWN if any(not math.isnan(policy.mean(n)) for policy in policies)]
    best = best_policy(place.compared, comparison.metric, comparison.error)
    differences = against(place.compared, comparison.baseline, comparison.metric, comparison.error)
    rows = []
    for policy, difference in zip(policies, differences, strict=True):
        delta = "unstable" if policy.unstable else "-" if difference is None else percent(difference)
        delta = "baseline" if policy.label == comparison.baseline and not policy.unstable else delta
        means = ("-" if policy.unstable else number(policy.mean(name)) for name in names)
        rows.append((policy.label, _standing(policy, best.label, best.even), delta, *means))
    heading = f"Δ {METRICS[comparison.metric].label}"
    columns = ("policy", "standing", heading, *(axis_title(name) for name in names))
    return Table(f"Load {place.name}", columns, tuple(rows), footnote(comparison))


def _standing(policy: PolicyResult, best: str | None, even: tuple[str, ...]) -> str:
    if policy.bound:
        return "bound"
    if policy.label == best:
        return "best"
    return "even with the best" if policy.label in even else ""
