"""How far a fit is off, told by cells that it has not seen; and how noisy the cells themselves are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Final

import numpy as np

from calibrate.cells import Cell, Measured
from calibrate.fit.cells import Floats, Mask, Table
from calibrate.fit.curve import Tabulated
from calibrate.fit.physical import Physical, fit_physical
from calibrate.fit.report import Spread

MOST_FOLDS: Final = 200
"""Up to so many cells are left out one by one; more, in so many groups."""

Tabulate = Callable[[Table, Mask, Physical], Tabulated]


def spread(errors: Iterable[float]) -> Spread | None:
    """Mean, 90th percentile and maximum of shares, in percent; None for none."""
    percent = 100.0 * np.asarray(list(errors), np.float64)
    if not percent.size:
        return None
    return Spread(
        mean=_round(percent.mean()),
        p90=_round(np.quantile(percent, 0.9)),
        max=_round(percent.max()),
        count=percent.size,
    )


def _round(value: float) -> float:
    return float(f"{min(float(value), 1e300):.4g}")


class HeldOut:
    """Physical fits without each group of cells: ``groups`` names the group of every cell.

    The fits are made once; ``errors`` may then be asked for several tables.
    """

    def __init__(self, table: Table, groups: Sequence[Hashable]) -> None:
        names = list(dict.fromkeys(groups))
        labels = np.array([names.index(group) for group in groups])
        keep = labels[None, :] != np.arange(len(names))[:, None]
        self.table = table
        self.keep = keep if len(names) > 1 else keep[:0]
        self.fits = fit_physical(table, self.keep) if len(names) > 1 else []

    def errors(self, tabulate: Tabulate) -> Floats:
        """Unsigned relative error of every cell, predicted without its group; empty with one group."""
        table, errors = self.table, np.zeros(len(self.table) if self.fits else 0)
        for keep, physical in zip(self.keep, self.fits, strict=True):
            out = ~keep
            predicted = tabulate(table, keep, physical).predict(table.count[out], table.columns[out])
            errors[out] = np.abs(predicted / table.ns[out] - 1.0)
        return errors


def one_by_one(table: Table) -> HeldOut:
    """Every cell left out once."""
    return HeldOut(table, [index % MOST_FOLDS for index in range(len(table))])


def by_sequences(table: Table) -> HeldOut:
    """All cells of one batch size left out."""
    return HeldOut(table, [cell.sequences for cell in table.cells])


def by_context(table: Table) -> HeldOut:
    """All decoding cells of one context left out; prefill counts as a context of its own."""
    return HeldOut(table, [cell.context if cell.sequences else -1 for cell in table.cells])


def noise(table: Table) -> Spread | None:
    """Split-half noise: medians of even and odd samples of one cell, as a share of their mean."""
    return spread(_split_half(samples) for samples in table.samples if len(samples) > 1)


def _split_half(samples: Sequence[float]) -> float:
    even, odd = float(np.median(samples[::2])), float(np.median(samples[1::2]))
    return abs(even - odd) / (even / 2 + odd / 2)


def drift(measured: Sequence[Measured]) -> float | None:
    """The largest change, in percent, that repeated cells have in common between two occasions.

    Repeated are cells flagged ``anchor``, or else any that occur twice. Each is compared with its
    own mean; the cells of one occasion are averaged, so that the noise of one does not pass for
    drift. None where nothing was repeated.
    """
    anchors = [one for one in measured if "anchor" in one.flags]
    series: dict[Cell, list[float]] = defaultdict(list)
    for one in anchors or measured:
        series[one.cell].append(float(np.log(np.median(one.samples_us))))
    repeated = [np.asarray(values) for values in series.values() if len(values) > 1]
    if not repeated:
        return None
    occasions = range(min(len(values) for values in repeated))
    offsets = [np.mean([values[i] - values.mean() for values in repeated]) for i in occasions]
    return _round(100.0 * float(np.expm1(min(max(offsets) - min(offsets), 600.0))))
