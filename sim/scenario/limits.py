"""Bounds that keep every number of a scenario inside 64-bit integers."""

from __future__ import annotations

import re

from sim.units import parse_bytes, parse_duration_ns

LARGEST = 1e15
LONGEST_NS = 10**18
"""About 31 years; int64 nanoseconds end at 292."""

_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*([a-zA-Zµ/%]{0,5})")


def too_large(text: str) -> bool:
    """Whether the text is a number, with or without a unit, beyond anything a scenario can mean."""
    match = _NUMBER.fullmatch(text.strip())
    if match is None:
        return False
    digits = len(match[1])
    return digits > 100 or abs(float(match[1] + (match[2] or ""))) > LARGEST or _too_long(text, match[3])


def _too_long(text: str, unit: str) -> bool:
    for parse in (parse_duration_ns, parse_bytes) if unit else ():
        try:
            return parse(text) > LONGEST_NS
        except ValueError:
            continue
    return False
