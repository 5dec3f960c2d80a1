"""Tables and sentences for a terminal, and the same as plain data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isnan
from pathlib import Path
from typing import Any

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from sim.against.bench import Bench
from sim.against.compare import Line, lines
from sim.against.finding import Diagnosis, Finding
from sim.against.fit import CHECKED, Fit, Parameter
from sim.against.measured import Run, label_of

_STYLES = {"points here": "bold red", "looks right": "green", "cannot tell": "yellow"}
_UNITS = {
    "overhead": "ms on top of every step",
    "verify": "x the target's passes",
    "draft": "x the drafter's passes",
    "acceptance": "in the log odds of acceptance",
}


def comparison(bench: Bench, every_metric: bool) -> Iterator[RenderableType]:
    """One table per run: measured, simulated with its standard deviation, error."""
    for number, run in enumerate(bench.runs):
        name = f"{Path(run.place).name} ({run.format})"
        table = _table(f"{run.label} · {bench.policies[number].title} · {name}")
        for heading in ("metric", "measured", "simulated", "error"):
            table.add_column(heading, justify="left" if heading == "metric" else "right")
        for line in lines(bench, number):
            if every_metric or _is_main(line.metric):
                table.add_row(*_cells(line))
        yield table
        yield from (Text(f"note: {note}", style="dim") for note in _notes(run))
        yield Text("")


def _is_main(metric: str) -> bool:
    """Percentiles other than the 99th are for those who ask."""
    return not metric.endswith(("_p50_ms", "_p90_ms"))


def _cells(line: Line) -> tuple[str, str, str, str]:
    deviation = f" ± {line.deviation:.2g}" if line.deviation else ""
    unit = " ms" if line.metric.endswith("_ms") else ""
    return (
        label_of(line.metric),
        f"{line.measured:.4g}{unit}",
        f"{line.simulated:.4g}{deviation}{unit}",
        f"{line.error:+.1%}",
    )


def _notes(run: Run) -> Iterator[str]:
    if not run.lengths_recorded:
        yield "the file states mean lengths only: percentiles and E2EL of mixed lengths will be off"
    yield from run.notes


def verdicts(diagnosis: Diagnosis) -> Iterator[RenderableType]:
    """Every suspect with its evidence, and the whole in one sentence."""
    for finding in diagnosis.findings:
        yield Text.assemble(
            (f"{finding.suspect}: ", "bold"),
            (finding.verdict, _STYLES[finding.verdict]),
            f". {_capital(finding.text)}.",
        )
        yield from (Text(f"    {line}", style="dim") for line in finding.evidence)
    yield Text("")
    yield Text(diagnosis.sentence, style="bold")


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def fitted(fit: Fit) -> Iterator[RenderableType]:
    """What was fitted, and errors before and after, apart for fitted and held-out runs."""
    for parameter in fit.parameters:
        yield Text(f"{parameter.name:<11} {_value(parameter)}")
    yield Text("")
    yield _errors(fit)
    yield from (Text(f"note: {note}", style="yellow") for note in fit.notes)
    yield Text(_worth(fit), style="bold")


def _value(parameter: Parameter) -> str:
    sign = "" if _UNITS[parameter.name].startswith("x ") else "+"
    return f"{parameter.value:{sign}.3f} ± {parameter.error:.3f} {_UNITS[parameter.name]}"


def _errors(fit: Fit) -> Table:
    table = _table("mean absolute error, before → after")
    table.add_column("metric")
    groups = (("fitted", fit.fitted), ("held out", fit.held_out))
    for name, numbers in groups:
        table.add_column(f"{name}: {_labels(fit.bench, numbers)}", justify="right")
    for metric in CHECKED:
        cells = [_change(fit, metric, numbers) for _, numbers in groups]
        if any(cell != "-" for cell in cells):
            table.add_row(label_of(metric), *cells)
    return table


def _labels(bench: Bench, numbers: Sequence[int]) -> str:
    return ", ".join(dict.fromkeys(bench.runs[n].label for n in numbers)) or "none"


def _change(fit: Fit, metric: str, numbers: Sequence[int]) -> str:
    before, after = (fit.error(metric, numbers, adjusted) for adjusted in (False, True))
    return "-" if isnan(before) else f"{before:.1%} → {after:.1%}"


def _worth(fit: Fit) -> str:
    """What the held-out runs say of the fit."""
    if not fit.held_out:
        return "Nothing was held out: whether this holds elsewhere is not known."
    before, after = (fit.error("tpot_mean_ms", fit.held_out, adjusted) for adjusted in (False, True))
    if isnan(before):
        return "The held-out runs have no TPOT to check."
    if after < before:
        text = f"On runs that it has not seen, TPOT is off by {after:.1%} instead of {before:.1%}"
        return f"{text}; worse became {', '.join(worse)}." if (worse := _worse(fit)) else f"{text}."
    return f"It does not hold on runs that it has not seen (TPOT {before:.1%} → {after:.1%}): do not use it."


def _worse(fit: Fit) -> list[str]:
    """Metrics whose error on held-out runs grew by more than a percentage point."""
    return [
        label_of(metric)
        for metric in CHECKED
        if fit.error(metric, fit.held_out, True) > fit.error(metric, fit.held_out, False) + 0.01
    ]


def _table(title: str) -> Table:
    return Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, show_edge=False)


# -- plain data ------------------------------------------------------------------------------------


def comparison_data(bench: Bench, diagnosis: Diagnosis) -> dict[str, Any]:
    """Everything that ``against`` prints."""
    runs = [
        {
            "place": run.place,
            "format": run.format,
            "load": run.load.label,
            "policy": bench.policies[number].title,
            "metrics": {line.metric: _line_data(line) for line in lines(bench, number)},
        }
        for number, run in enumerate(bench.runs)
    ]
    return {
        "runs": runs,
        "findings": [_finding_data(finding) for finding in diagnosis.findings],
        "points_to": list(diagnosis.culprits),
    }


def _line_data(line: Line) -> dict[str, float]:
    return {
        "measured": line.measured,
        "simulated": line.simulated,
        "deviation": line.deviation,
        "error": line.error,
    }


def _finding_data(finding: Finding) -> dict[str, Any]:
    return {
        "suspect": finding.suspect,
        "verdict": finding.verdict,
        "text": finding.text,
        "evidence": list(finding.evidence),
    }


def fit_data(fit: Fit) -> dict[str, Any]:
    """Everything that ``fit`` prints."""

    def errors(numbers: Sequence[int], adjusted: bool) -> dict[str, float]:
        found = {metric: fit.error(metric, numbers, adjusted) for metric in CHECKED}
        return {metric: value for metric, value in found.items() if not isnan(value)}

    groups = {"fitted": fit.fitted, "held_out": fit.held_out}
    return {
        "parameters": {p.name: {"value": p.value, "standard_error": p.error} for p in fit.parameters},
        "runs": {name: [fit.bench.runs[n].place for n in numbers] for name, numbers in groups.items()},
        "errors": {
            name: {"before": errors(numbers, False), "after": errors(numbers, True)}
            for name, numbers in groups.items()
        },
        "notes": list(fit.notes),
    }
