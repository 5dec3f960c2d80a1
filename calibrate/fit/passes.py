"""One pass: measured cells in; fitted terms, exact terms and an honest report out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np

from calibrate.cells import Measured
from calibrate.fit.cells import FORWARD, Floats, Table, describe, shape_of, table_of
from calibrate.fit.curve import Tabulated, exact, fitted
from calibrate.fit.errors import by_context, by_sequences, drift, noise, one_by_one, spread
from calibrate.fit.physical import Physical, fit_physical
from calibrate.fit.report import FitReport, Range
from calibrate.profile import Term

SHARES: Final = (0.0, 0.5, 1.0)
"""How much of the measured deviation from the physical form a fit may follow."""


@dataclass(frozen=True)
class PassFit:
    """A fitted pass: terms for mode ``fit``, terms for mode ``exact``, and how far they are off."""

    terms_fit: tuple[Term, ...]
    terms_exact: tuple[Term, ...]
    report: FitReport
    fit: Tabulated
    table: Table

    @property
    def errors(self) -> Floats:
        """Signed relative error of the fit at each cell of the table."""
        return np.asarray(self.fit.predict(self.table.count, self.table.columns) / self.table.ns - 1.0)


def fit_pass(measured: Sequence[Measured], name: str | None = None) -> PassFit:
    """Fit the cells of one pass (``verify``, ``prefill`` and ``mixed`` are one).

    ``name`` is that of its first term; by default the pass's. The physical form comes first; the
    share of the measured deviation that the curve follows is the one with the smallest mean
    leave-one-out error. Raises ``FitError`` for no usable cell and for absurd times.
    """
    table = table_of(measured)
    everything = np.ones(len(table), bool)
    physical = fit_physical(table, everything[None])[0]
    left_out = one_by_one(table)
    held_out = {share: left_out.errors(partial(fitted, share=share)) for share in SHARES}
    share = min(SHARES, key=lambda s: (held_out[s].mean() if held_out[s].size else 0.0, s))
    errors, fit = held_out[share], fitted(table, everything, physical, share)
    report = _report(table, physical, fit).model_copy(
        update={
            "excluded": table.excluded,
            "residual": share,
            "noise": noise(table),
            "leave_one_out": spread(errors),
            "leave_sequences_out": spread(by_sequences(table).errors(partial(fitted, share=share))),
            "leave_context_out": spread(by_context(table).errors(partial(fitted, share=share))),
            "exact": spread(left_out.errors(exact)),
            "drift_percent": drift(measured),
            "worst": _worst(table, errors),
        }
    )
    title = name or ("forward" if table.cells[0].pass_ in FORWARD else table.cells[0].pass_)
    return PassFit(
        fit.terms(title, _source(report, "fit")),
        exact(table, everything, physical).terms(title, _source(report, "exact")),
        report,
        fit,
        table,
    )


def _report(table: Table, physical: Physical, fit: Tabulated) -> FitReport:
    inside = physical.slope > 0 and table.count.min() < physical.knee < table.count.max()
    return FitReport(
        cells=len(table),
        coefficients=_coefficients(table, physical),
        ridge_tokens=float(f"{physical.knee:.4g}") if inside else None,
        domain=_domain(table),
        in_sample=spread(np.abs(fit.predict(table.count, table.columns) / table.ns - 1.0)),
    )


def _coefficients(table: Table, physical: Physical) -> dict[str, float]:
    """The constant, memory time, ns per unit of each variable; and the power of the maximum."""
    per = dict(zip(table.variables.linear, physical.linear[1:], strict=True))
    values = {
        "fixed": physical.linear[0],
        "memory": physical.slope * physical.knee,
        f"per_{table.variables.over}": physical.slope,
        "power": physical.power,
        **{f"per_{variable}": ns for variable, ns in per.items()},
    }
    return {name: float(f"{value:.5g}") for name, value in values.items()}


def _domain(table: Table) -> dict[str, Range]:
    columns: dict[str, list[float]] = {
        "tokens": [shape_of(cell)["tokens"] for cell in table.cells],
        "sequences": [cell.sequences for cell in table.cells],
        "width": [cell.width for cell in table.cells],
        "context": [cell.context for cell in table.cells if cell.sequences] or [0],
    }
    return {name: Range(lowest=min(values), highest=max(values)) for name, values in columns.items()}


def _worst(table: Table, errors: Floats) -> str:
    if not errors.size:
        return ""
    worst = int(errors.argmax())
    return f"{describe(table.cells[worst])} ({min(100 * errors[worst], 1e300):.3g} % off)"


def _source(report: FitReport, mode: str) -> str:
    error = report.leave_one_out if mode == "fit" else report.exact
    held_out = f"; left out one by one: {error}" if error else ""
    how = "physical form" if mode == "fit" else "measured medians"
    if mode == "fit" and report.residual:
        how += f" + {report.residual:.0%} of the measured deviation"
    return f"{report.cells} cells measured here, {how}{held_out}"
