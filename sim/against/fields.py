"""JSON objects with their place, so that a missing or odd value is named with file, field and fix."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from sim.errors import InputError


class Fields:
    """One object of a result file; ``hint`` says what to do when something is not there."""

    def __init__(self, place: str, data: object, hint: str, at: str = "") -> None:
        self.place, self.hint, self.at = place, hint, at
        if not isinstance(data, Mapping):
            raise InputError(f"{place}: {at or 'it'} is no JSON object; {hint}")
        self.data: Mapping[str, Any] = data

    def wrong(self, key: str, message: str) -> InputError:
        """Make the error for one field."""
        return InputError(f"{self.place}: {self._name(key)} {message}; {self.hint}")

    def number(self, key: str) -> float:
        """A finite number above or at 0; ``InputError`` if it is not there."""
        found = self.maybe(key)
        if found is None:
            raise self.wrong(key, "is missing")
        return found

    def maybe(self, key: str) -> float | None:
        """The same, or ``None`` where the field is absent or null; ``InputError`` for anything else."""
        value = self.data.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
            raise self.wrong(key, f"is {value!r}, not a number from 0 up")
        return float(value)

    def nanoseconds(self, key: str) -> int:
        """A time in whole nanoseconds, which a float would round by hundreds."""
        value = self.data.get(key)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise self.wrong(key, f"is {value!r}, not whole nanoseconds")
        return value

    def inside(self, key: str) -> Fields:
        """The object under a key, an empty one if it is absent or null."""
        value = self.data.get(key)
        return Fields(self.place, {} if value is None else value, self.hint, self._name(key))

    def numbers(self, key: str) -> list[float]:
        """A list of numbers, empty if it is absent or null."""
        values = self.data.get(key) or []
        if not isinstance(values, Sequence) or isinstance(values, str):
            raise self.wrong(key, f"is {values!r}, not a list of numbers")
        for value in values:
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                raise self.wrong(key, f"holds {value!r}, which is no number")
        return [float(value) for value in values]

    def objects(self, key: str) -> list[Fields]:
        """A list of objects, empty if it is absent or null."""
        values = self.data.get(key) or []
        if not isinstance(values, list):
            raise self.wrong(key, "is not a list of objects")
        return [
            Fields(self.place, value, self.hint, f"{self._name(key)}[{i}]") for i, value in enumerate(values)
        ]

    def _name(self, key: str) -> str:
        return f"{self.at}.{key}" if self.at else key
