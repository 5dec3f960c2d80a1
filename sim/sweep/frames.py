"""Plain columns, and the frames of the libraries that people use in notebooks."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sim.errors import InputError
from sim.results.metrics import Metrics
from sim.scenario.model import Cell

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow


@dataclass(frozen=True)
class Table:
    """Columns of equal length by name."""

    columns: dict[str, Any]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def to_pandas(self) -> pandas.DataFrame:
        """A pandas frame."""
        frame: pandas.DataFrame = _library("pandas").DataFrame(self.columns)
        return frame

    def to_polars(self) -> polars.DataFrame:
        """A Polars frame."""
        frame: polars.DataFrame = _library("polars").DataFrame(self.columns)
        return frame

    def arrow(self) -> pyarrow.Table:
        """An Arrow table."""
        table: pyarrow.Table = _library("pyarrow").table(self.columns)
        return table


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise InputError(f"{name} is not installed; install leadline[frames]") from None


def rows_of(cells: Sequence[Cell], runs: Mapping[tuple[str, str, int], tuple[Metrics, float]]) -> Table:
    """One row per run: cell, its settings by swept path, policy, seed, and every metric.

    An unstable run keeps its metrics here; ``unstable`` says that they depend on how long it ran.
    """
    settings = {cell.label: dict(cell.settings) for cell in cells}
    paths = dict.fromkeys(path for each in settings.values() for path in each)
    columns: dict[str, list[Any]] = {"cell": [at for at, _, _ in runs]}
    columns |= {path: [settings[at].get(path) for at, _, _ in runs] for path in paths}
    columns |= {"policy": [policy for _, policy, _ in runs], "seed": [seed for _, _, seed in runs]}
    columns["unstable"] = [metrics.unstable for metrics, _ in runs.values()]
    names = next(iter(runs.values()))[0].values if runs else ()
    columns |= {name: [float(metrics[name]) for metrics, _ in runs.values()] for name in names}
    columns["extrapolated_share"] = [share for _, share in runs.values()]
    return Table(columns)
