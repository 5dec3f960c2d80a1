"""Units, parsed at the YAML edge only: ``250ms``, ``12/s``, ``80GiB`` become plain numbers.

Inside the simulator time is integer nanoseconds, rates are requests per second and sizes bytes.
"""

from __future__ import annotations

import math
import re
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

NS_PER_S = 1_000_000_000
NS_PER_MS = 1_000_000

_NUMBER = re.compile(r"^\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*([^\s\d]*)\s*$")
_DURATION_NS = {"ns": 1, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9, "min": 6e10, "h": 3.6e12}
_RATE_PER_S = {"/s": 1.0, "/min": 1 / 60, "/h": 1 / 3600, "rps": 1.0, "qps": 1.0}
_BYTES = {
    "B": 1,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}

_BYTES_PER_S = {f"{unit}/s": float(size) for unit, size in _BYTES.items()} | {"Gbit/s": 1e9 / 8}


def _quantity(value: object, units: dict[str, float], what: str, example: str) -> float:
    """``value`` in base units; a string must carry one of ``units``."""
    if isinstance(value, str):
        match = _NUMBER.match(value)
        if match is None:
            raise ValueError(f"{value!r} is not a {what}; write for example {example}")
        number, unit = match.groups()
        if unit not in units:
            known = ", ".join(units)
            raise ValueError(f"unknown unit {unit!r} in {value!r}; a {what} takes {known}, as in {example}")
        base = float(number) * units[unit]
        if not math.isfinite(base):
            raise ValueError(f"{value!r} is too large; write for example {example}")
        return base
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{value!r} is not a {what}; write for example {example}")
    if not math.isfinite(value):
        raise ValueError(f"{value!r} is not finite; write for example {example}")
    raise ValueError(f"{value!r} has no unit; write for example {example}")


def parse_duration_ns(value: object) -> int:
    """Nanoseconds of ``'250ms'``; ``ValueError`` when the unit is missing or unknown."""
    return round(_quantity(value, dict(_DURATION_NS), "duration", "250ms"))


def parse_rate_per_s(value: object) -> float:
    """Requests per second of ``'12/s'``; ``ValueError`` when the unit is missing or unknown."""
    return _quantity(value, _RATE_PER_S, "rate", "12/s")


def parse_bytes(value: object) -> int:
    """Bytes of ``'80GiB'``; ``ValueError`` when the unit is missing or unknown."""
    return round(_quantity(value, dict(_BYTES), "size", "80GiB"))


def parse_bytes_per_s(value: object) -> float:
    """Bytes per second of ``'50GB/s'``; ``ValueError`` when the unit is missing or unknown."""
    return _quantity(value, _BYTES_PER_S, "bandwidth", "50GB/s")


def _edge(parse: object) -> BeforeValidator:
    """Parse strings and reject bare numbers at the YAML edge."""
    return BeforeValidator(parse)  # type: ignore[arg-type]


def _schema(example: str, units: dict[str, float]) -> WithJsonSchema:
    suffix = "|".join(re.escape(unit) for unit in units)
    return WithJsonSchema(
        {"type": "string", "pattern": rf"^\s*[0-9.eE+-]+\s*({suffix})\s*$", "examples": [example]}
    )


DurationNs = Annotated[int, _edge(parse_duration_ns), Field(ge=0), _schema("250ms", dict(_DURATION_NS))]
RatePerS = Annotated[float, _edge(parse_rate_per_s), Field(gt=0), _schema("12/s", _RATE_PER_S)]
Bytes = Annotated[int, _edge(parse_bytes), Field(ge=0), _schema("80GiB", dict(_BYTES))]
BytesPerS = Annotated[float, _edge(parse_bytes_per_s), Field(gt=0), _schema("50GB/s", _BYTES_PER_S)]


class Config(BaseModel):
    """Base of every configuration: frozen, unknown keys refused, validated once at the edge."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
