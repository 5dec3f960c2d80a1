"""``map.json``: a map as plain data of the schema ``leadline.map/1``, and back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from sim.errors import InputError
from sim.map.model import Axis, Choice, Curve, Figures, Map, Point
from sim.results.store import read_json, write_json

SCHEMA: Final = "leadline.map/1"
_DIGITS: Final = 6


def write(path: Path, found: Map) -> None:
    """Write ``map.json``, whole or not at all."""
    write_json(path, to_data(found))


def read(path: Path) -> Map:
    """Read back what ``write`` wrote; raises ``InputError`` naming the file."""
    data = read_json(path, SCHEMA)
    try:
        return from_data(data)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path}: is no map that this version reads ({error!r}); make it anew") from None


def to_data(found: Map) -> dict[str, Any]:
    """The map as JSON holds it; floats have six digits, NaN is ``None``."""
    return {
        "schema": SCHEMA,
        "about": dict(found.about),
        "metric": found.metric,
        "error": found.error,
        "baseline": found.baseline,
        "axes": [{"name": a.name, "unit": a.unit, "values": list(a.values)} for a in found.axes],
        "policies": list(found.policies),
        "depths": {str(depth): label for depth, label in found.depths.items()},
        "points": [_point(found, point) for point in found.points],
        "cells": [list(cell) for cell in found.cells],
        "curve": asdict(found.curve) | {"tokens": list(found.curve.tokens), "ms": list(found.curve.ms)},
    }


def _point(found: Map, point: Point) -> dict[str, Any]:
    return {
        "at": dict(zip((axis.name for axis in found.axes), point.at, strict=True)),
        "rate_per_s": _short(point.rate_per_s),
        "context_tokens": _short(point.context_tokens),
        "policies": {
            label: {name: _short(value) for name, value in asdict(figures).items()}
            for label, figures in point.policies.items()
        },
        **_choice(point.policy),
        "best_depth": found.depth_of(point.depth.best),
        "even_depths": [found.depth_of(label) for label in point.depth.even],
        "depth_choice": _choice(point.depth),
    }


def _choice(choice: Choice) -> dict[str, Any]:
    return {
        "best": choice.best,
        "even": list(choice.even),
        "margin": _short(choice.margin),
        "margin_half": _short(choice.margin_half),
        "over": choice.over,
    }


def _short(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, float):
        return value
    return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None


def from_data(data: Mapping[str, Any]) -> Map:
    """The map in such data; ``KeyError``, ``TypeError`` or ``ValueError`` if it is not one."""
    axes = tuple(Axis(a["name"], a["unit"], tuple(map(float, a["values"]))) for a in data["axes"])
    curve = data["curve"]
    return Map(
        about=dict(data["about"]),
        metric=data["metric"],
        error=float(data["error"]),
        baseline=data["baseline"],
        axes=axes,
        policies=tuple(data["policies"]),
        depths={int(depth): label for depth, label in data["depths"].items()},
        points=tuple(_point_of(axes, point) for point in data["points"]),
        cells=tuple(tuple(map(int, cell)) for cell in data["cells"]),
        curve=Curve(**{**curve, "tokens": tuple(curve["tokens"]), "ms": tuple(curve["ms"])}),
    )


def _point_of(axes: tuple[Axis, ...], data: Mapping[str, Any]) -> Point:
    policies = {
        label: Figures(**{name: _number(value) for name, value in figures.items()})
        for label, figures in data["policies"].items()
    }
    return Point(
        at=tuple(float(data["at"][axis.name]) for axis in axes),
        policies=policies,
        policy=_choice_of(data),
        depth=_choice_of(data["depth_choice"]),
        rate_per_s=_number(data["rate_per_s"]),
        context_tokens=_number(data["context_tokens"]),
    )


def _choice_of(data: Mapping[str, Any]) -> Choice:
    margin, half = (_number(data[name]) for name in ("margin", "margin_half"))
    return Choice(data["best"], tuple(data["even"]), margin, half, data["over"])


def _number(value: Any) -> Any:
    return math.nan if value is None else value
