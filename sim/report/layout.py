"""How the cells of a sweep lie: one load axis, and beside it the settings that were swept as well."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

from sim.results import compare
from sim.scenario.model import Cell

MAX_SETTINGS: Final = 4
MAX_PLACES: Final = 40
MAX_PANELS: Final = 4
_LOADS: Final = ("request_rate", "max_concurrency", "rate_scale")
_UNITS: Final = {"request_rate": "requests per second", "max_concurrency": "requests in flight"}


@dataclass(frozen=True)
class Place:
    """One cell: its setting (``""`` if only the load is swept), its load in words and as a number."""

    setting: str
    load: str
    value: float | None
    cell: Cell
    compared: compare.Cell

    @property
    def name(self) -> str:
        """Setting and load in words."""
        return f"{self.setting}, {self.load}" if self.setting else self.load


@dataclass(frozen=True)
class Layout:
    """The cells shown, by setting and rising load; ``axis`` names the load.

    ``left_out`` cells are in no chart or table, so that the report stays small.
    """

    axis: str
    places: tuple[Place, ...]
    left_out: int

    @property
    def settings(self) -> tuple[str, ...]:
        """Every setting, in the order of the sweep."""
        return tuple(dict.fromkeys(place.setting for place in self.places))

    @property
    def numeric(self) -> bool:
        """Whether the load is a number, so that it has a scale."""
        return all(place.value is not None for place in self.places)

    def of(self, setting: str) -> tuple[Place, ...]:
        """The cells of one setting."""
        return tuple(place for place in self.places if place.setting == setting)

    def panels(self, setting: str) -> tuple[Place, ...]:
        """At most ``MAX_PANELS`` cells of one setting, from the lowest to the highest load."""
        places = self.of(setting)
        if len(places) <= MAX_PANELS:
            return places
        return tuple(places[round(i * (len(places) - 1) / (MAX_PANELS - 1))] for i in range(MAX_PANELS))


def lay_out(cells: tuple[Cell, ...], comparison: compare.Comparison) -> Layout:
    """Cells beside what was found in them; they are of one sweep, in the same order."""
    axis = _axis(cells)
    places = [_place(cell, found, axis) for cell, found in zip(cells, comparison.cells, strict=True)]
    settings = list(dict.fromkeys(place.setting for place in places))
    if all(place.value is not None for place in places):
        places.sort(key=lambda place: (settings.index(place.setting), place.value))
    else:
        places.sort(key=lambda place: settings.index(place.setting))
    shown = [place for place in places if place.setting in settings[:MAX_SETTINGS]][:MAX_PLACES]
    return Layout(_name(axis), tuple(shown), len(places) - len(shown))


def _axis(cells: tuple[Cell, ...]) -> str | None:
    """The swept path that is a load, or else the first that is a number, or else the first."""
    paths = [path for path, _ in cells[0].settings] if cells else []
    for path in paths:
        if path.rsplit(".", 1)[-1] in _LOADS:
            return path
    return next(
        (p for p in paths if all(_number(cell, p) is not None for cell in cells)), next(iter(paths), None)
    )


def _place(cell: Cell, found: compare.Cell, axis: str | None) -> Place:
    labels = dict(cell.settings)
    beside = ", ".join(label for path, label in cell.settings if path != axis)
    load = labels[axis] if axis is not None else cell.label
    return Place(beside, load, None if axis is None else _number(cell, axis), cell, found)


def _number(cell: Cell, path: str) -> float | None:
    """The swept value in base units (rates per second), ``None`` if it is no number."""
    try:
        value: Any = reduce(getattr, path.split("."), cell.scenario)
    except AttributeError:
        return None
    return None if isinstance(value, bool) or not isinstance(value, int | float) else float(value)


def _name(axis: str | None) -> str:
    if axis is None:
        return "load"
    last = axis.rsplit(".", 1)[-1]
    unit = _UNITS.get(last)
    return unit if unit else last.replace("_", " ")
