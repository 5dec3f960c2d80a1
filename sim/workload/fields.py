"""Single values of trace rows; each ``ValueError`` says what is wrong and what would be right."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from sim.units import NS_PER_S

_TIMESTAMP = re.compile(
    r"^\s*(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?\s*(Z|[+-]\d\d:?\d\d)?\s*$"
)
_DECIMAL = re.compile(r"^\s*(-?)(\d+)(?:\.(\d*))?\s*$")
MOST_TOKENS = 2**40
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def whole(value: object, name: str) -> int:
    """Count, 0 or more, from text or JSON (``12`` and ``12.0``)."""
    if type(value) is int and 0 <= value < MOST_TOKENS:
        return value
    number = value
    if isinstance(value, str):
        try:
            return _not_negative(int(value), name)
        except ValueError:
            number = _float(value)
    if isinstance(number, float) and math.isfinite(number) and number == int(number):
        number = int(number)
    if isinstance(number, bool) or not isinstance(number, int):
        raise ValueError(f"{name} is {value!r}; it must be a whole number of tokens")
    return _not_negative(number, name)


def _not_negative(number: int, name: str) -> int:
    if not 0 <= number < MOST_TOKENS:
        raise ValueError(f"{name} is {number}; it must be a whole number from 0 to 2^40")
    return number


def _float(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def scaled_ns(value: object, name: str, ns_per_unit: int) -> int:
    """Nanoseconds of a JSON number of a given unit."""
    good = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not good or not isinstance(value, int | float):
        raise ValueError(f"{name} is {value!r}; it must be a number")
    return _in_range(value * ns_per_unit if isinstance(value, int) else round(value * ns_per_unit), name)


def seconds_ns(text: str, name: str) -> int:
    """Nanoseconds of decimal seconds in text, exact to the ninth digit."""
    match = _DECIMAL.match(text)
    if match is None:
        raise ValueError(f"{name} is {text!r}; it must be seconds, for example 45 or 45.25")
    sign, seconds, fraction = match.groups()
    ns = int(seconds) * NS_PER_S + int((fraction or "").ljust(9, "0")[:9])
    return _in_range(-ns if sign else ns, name)


def timestamp_ns(text: str, name: str) -> int:
    """Nanoseconds since 1970 of ``2023-11-16 18:17:03.9799600``, with or without a time zone."""
    match = _TIMESTAMP.match(text)
    if match is None:
        raise ValueError(
            f"{name} is {text!r}; it must be like 2023-11-16 18:17:03.9799600, with or without +00:00"
        )
    day, clock, fraction, zone = match.groups()
    seconds = _day_s(day, name) + _clock_s(clock, name) - _zone_s(zone)
    return _in_range(seconds * NS_PER_S + int((fraction or "").ljust(9, "0")), name)


@lru_cache(maxsize=1024)
def _day_s(day: str, name: str) -> int:
    try:
        return round((datetime.strptime(day, "%Y-%m-%d").replace(tzinfo=UTC) - _EPOCH) / timedelta(seconds=1))
    except ValueError:
        raise ValueError(f"{name} has the date {day}, which does not exist; write YYYY-MM-DD") from None


def _clock_s(clock: str, name: str) -> int:
    hours, minutes, seconds = int(clock[:2]), int(clock[3:5]), int(clock[6:])
    if hours > 23 or minutes > 59 or seconds > 60:
        raise ValueError(f"{name} has the time {clock}, which does not exist; write hh:mm:ss")
    return hours * 3600 + minutes * 60 + seconds


def _zone_s(zone: str | None) -> int:
    if zone is None or zone == "Z":
        return 0
    seconds = int(zone[1:3]) * 3600 + int(zone[-2:]) * 60
    return -seconds if zone[0] == "-" else seconds


def _in_range(ns: int, name: str) -> int:
    if not -(2**62) < ns < 2**62:
        raise ValueError(f"{name} is out of range; times must stay within 146 years of 1970")
    return ns
