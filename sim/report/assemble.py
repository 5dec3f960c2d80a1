"""From results to a report: everything that it will say, as plain data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sim.report.acceptance import by_position
from sim.report.breakdown import breakdown
from sim.report.compare_charts import forest, latency, pareto, regret
from sim.report.crossover import crossover
from sim.report.depth_breadth import depth_breadth
from sim.report.examples import Examples
from sim.report.layout import Layout, lay_out
from sim.report.model import Chart, PolicyStyle, Report
from sim.report.provenance import sources, warnings
from sim.report.styles import styles
from sim.report.tables import load_tables
from sim.report.timeline import MOST_POLICIES, timeline
from sim.report.verdict import ranges, sentences
from sim.results.compare import Comparison
from sim.results.words import footnote, verdict

if TYPE_CHECKING:
    from sim.sweep.results import Results


def build(results: Results) -> Report:
    """Everything the report says; raises ``InputError`` without the extra ``report``."""
    comparison = results.comparison
    layout = lay_out(results.cells, comparison)
    drawn = styles(comparison)
    return Report(
        title=results.scenario.name,
        description=results.scenario.description,
        verdict=sentences(layout, comparison),
        loads=tuple(verdict(place.compared, comparison) for place in layout.places),
        basis=footnote(comparison),
        warnings=warnings(layout, results),
        policies=drawn,
        settings=layout.settings,
        charts=_charts(layout, results, drawn),
        tables=load_tables(layout, comparison),
        sources=sources(layout, results),
    )


def _charts(layout: Layout, results: Results, drawn: Sequence[PolicyStyle]) -> tuple[Chart, ...]:
    comparison, examples = results.comparison, Examples(results)
    found = (
        latency(layout, comparison, drawn),
        forest(layout, comparison, drawn),
        pareto(layout, comparison, drawn),
        depth_breadth(layout, examples, drawn),
        timeline(layout, examples, leading(layout, comparison), drawn),
        breakdown(layout, examples, drawn),
        by_position(layout, examples.seed, drawn),
        regret(layout, comparison, drawn),
        crossover(layout, examples.seed, drawn),
    )
    return tuple(chart for chart in found if chart is not None)


def leading(layout: Layout, comparison: Comparison) -> list[str]:
    """At most ``MOST_POLICIES`` policies worth a line of their own, in table order.

    Recommended ones come first, then the baseline, the bound, and the others as they stand.
    """
    chosen = [
        choice
        for setting in layout.settings
        for part in ranges(layout.of(setting), comparison)
        if (choice := part.choice(comparison.baseline)) is not None
    ]
    policies = layout.places[0].compared.policies
    bounds = [policy.label for policy in policies if policy.bound]
    labels = [policy.label for policy in policies]
    picked = list(dict.fromkeys([*chosen, comparison.baseline, *bounds, *labels]))[:MOST_POLICIES]
    return [label for label in labels if label in picked]
