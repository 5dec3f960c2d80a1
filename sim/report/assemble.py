"""From results to a report: everything that it will say, as plain data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from calibrate.profile import ProfileError
from sim.errors import InputError
from sim.report.acceptance import by_position
from sim.report.breakdown import breakdown
from sim.report.compare_charts import forest, latency, pareto, regret
from sim.report.crossover import crossover
from sim.report.depth_breadth import depth_breadth
from sim.report.examples import Examples
from sim.report.fleet import fleet_tables
from sim.report.layout import Layout, lay_out
from sim.report.model import Chart, PolicyStyle, Report
from sim.report.provenance import sources, warnings
from sim.report.styles import styles
from sim.report.tables import load_tables
from sim.report.timeline import MOST_POLICIES, timeline
from sim.report.vega import altair
from sim.report.verdict import ranges, sentences
from sim.results.compare import Comparison
from sim.results.words import footnote, verdict

if TYPE_CHECKING:
    from sim.sweep.results import Results


def build(results: Results) -> Report:
    """Everything the report says; raises ``InputError`` without the extra ``report``."""
    altair()
    comparison = results.comparison
    layout = lay_out(results.cells, comparison)
    drawn = styles(comparison)
    examples = Examples(results)
    charts, missing = _charts(layout, results, drawn, examples)
    return Report(
        title=results.scenario.name,
        description=results.scenario.description,
        verdict=sentences(layout, comparison),
        loads=tuple(verdict(place.compared, comparison) for place in layout.places),
        basis=footnote(comparison),
        warnings=(*warnings(layout, results), *missing),
        policies=drawn,
        settings=layout.settings,
        charts=charts,
        tables=(*load_tables(layout, comparison), *fleet_tables(layout, examples)),
        sources=sources(layout, results),
    )


def _charts(
    layout: Layout, results: Results, drawn: Sequence[PolicyStyle], examples: Examples
) -> tuple[tuple[Chart, ...], tuple[str, ...]]:
    """The charts, and what is said of those that a missing file keeps from being made."""
    comparison = results.comparison
    lines = leading(layout, comparison)
    makers: dict[str, Callable[[], Chart | None]] = {
        "latency": lambda: latency(layout, comparison, drawn),
        "differences": lambda: forest(layout, comparison, drawn),
        "throughput": lambda: pareto(layout, comparison, drawn),
        "depth and breadth": lambda: depth_breadth(layout, examples, drawn),
        "depth over time": lambda: timeline(layout, examples, lines, drawn),
        "step breakdown": lambda: breakdown(layout, examples, drawn),
        "acceptance by position": lambda: by_position(layout, examples, drawn),
        "regret": lambda: regret(layout, comparison, drawn),
        "batch and context": lambda: crossover(layout, examples, drawn),
    }
    charts, missing = [], []
    for name, make in makers.items():
        try:
            chart = make()
        except (InputError, ProfileError) as error:
            missing.append(f"The chart of {name} is left out: {error}")
        else:
            charts += [chart] if chart is not None else []
    return tuple(charts), tuple(missing)


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
