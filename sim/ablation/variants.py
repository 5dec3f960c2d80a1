"""One engine with its mechanisms turned off, one at a time and all together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sim.engine.behaviour import Behaviour
from sim.engine.config import EngineConfig
from sim.engine.presets import PRESETS, PresetName
from sim.errors import InputError
from sim.scenario.words import did_you_mean

AS_IT_STANDS: Final = "as it stands"
TOGETHER: Final = "together"


@dataclass(frozen=True)
class Variant:
    """An engine to run: ``switch`` is the one mechanism that is changed, or one of the two names above."""

    switch: str
    engine: EngineConfig


@dataclass(frozen=True)
class Change:
    """One mechanism: what the scenario's engine does, and what the reference does."""

    switch: str
    stands: Any
    reference: Any


def changes(
    engine: EngineConfig, against: PresetName, switches: Sequence[str] | None = None
) -> tuple[Change, ...]:
    """The switches in which an engine differs from a preset, in the order of the schema.

    ``switches`` keeps some of them; raises ``InputError`` for a name that is no switch.
    """
    known = tuple(Behaviour.model_fields)
    wrong = [
        f"there is no switch {name!r}{did_you_mean(name, known)}"
        for name in switches or ()
        if name not in known
    ]
    if wrong:
        raise InputError("\n".join(wrong))
    mine, theirs = engine.behaviour, PRESETS[against]
    pairs = [Change(name, getattr(mine, name), getattr(theirs, name)) for name in known]
    return tuple(
        each
        for each in pairs
        if each.stands != each.reference and (switches is None or each.switch in switches)
    )


def variants(engine: EngineConfig, changed: Sequence[Change]) -> tuple[Variant, ...]:
    """The engine as it stands, with each change alone, and with all; limits and memory stay as they are."""
    alone = [Variant(each.switch, _with(engine, [each])) for each in changed]
    whole = [Variant(TOGETHER, _with(engine, changed))] if len(changed) > 1 else []
    return (Variant(AS_IT_STANDS, engine), *alone, *whole)


def _with(engine: EngineConfig, changed: Sequence[Change]) -> EngineConfig:
    return engine.model_copy(update={each.switch: each.reference for each in changed})
