"""Presets whose every value names where it was read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sim.engine.behaviour import Behaviour


class Sourced(NamedTuple):
    """A value, and where it stands: a file of the engine's sources or a document, and what in it.

    A source that begins with ``not found`` or ``here`` says that the value is not the engine's own.
    """

    value: Any
    source: str


class AtLeast(NamedTuple):
    """A limit that follows another one of the same engine: its value, and no less than ``least``."""

    limit: str
    least: int


class Unless(NamedTuple):
    """A limit that the engine sets by itself, unless another one is stated."""

    limit: str
    value: int


@dataclass(frozen=True)
class EnginePreset:
    """One engine: every switch of ``Behaviour``, and limits whose defaults are the engine's own.

    ``engine`` is its name and ``version`` what was read; ``about`` is one sentence for lists.
    """

    engine: str
    version: str
    about: str
    switches: Mapping[str, Sourced]
    limits: Mapping[str, Sourced] = field(default_factory=dict)

    @property
    def behaviour(self) -> Behaviour:
        """The switches as the scheduler reads them; ``ValidationError`` names one that lacks, or is none."""
        return Behaviour(**{name: each.value for name, each in self.switches.items()})

    def limits_beside(self, given: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
        """The engine's limits that ``given`` does not set; those that follow another are worked out.

        ``defaults`` are of limits that the engine has no own default for.
        """
        found = {name: each.value for name, each in self.limits.items() if name not in given}
        known = {**defaults, **found, **given}
        settled = {name: _settled(value, known, given) for name, value in found.items()}
        return {name: value for name, value in settled.items() if value is not None}


def _settled(value: Any, known: Mapping[str, Any], given: Mapping[str, Any]) -> Any:
    if isinstance(value, Unless):
        return None if value.limit in given else value.value
    if isinstance(value, AtLeast):
        followed = known.get(value.limit)
        return max(followed, value.least) if isinstance(followed, int) else value.least
    return value
