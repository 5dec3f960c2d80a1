"""What a preset sets, what each value does, where it was read, and how presets differ."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from sim.engine.behaviour import Behaviour
from sim.engine.config import EngineConfig
from sim.engine.presets import ENGINES, PresetName
from sim.engine.sourced import AtLeast, EnginePreset, Sourced, Unless
from sim.errors import InputError
from sim.scenario.words import did_you_mean

NAMES: Final = tuple(ENGINES)
_LIMITS: Final = frozenset(limit for engine in ENGINES.values() for limit in engine.limits)


@dataclass(frozen=True)
class Row:
    """One switch or limit of one preset: its value, what it does, and where the value was read."""

    name: str
    kind: Literal["switch", "limit"]
    value: Any
    about: str
    source: str


@dataclass(frozen=True)
class Difference:
    """One switch or limit that two presets set differently."""

    name: str
    kind: Literal["switch", "limit"]
    about: str
    values: tuple[Any, Any]
    sources: tuple[str, str]


def preset_of(name: str) -> PresetName:
    """The preset of that name; raises ``InputError`` naming those there are."""
    if name not in NAMES:
        near = did_you_mean(name, NAMES)
        known = "" if "known are" in near else f" known are {', '.join(NAMES)}"
        raise InputError(f"there is no preset {name!r}{near}{known}")
    return name


def rows(name: str) -> list[Row]:
    """Every switch of a preset, then the limits that some preset sets, in the order of the schema."""
    engine = ENGINES[preset_of(name)]
    limits = {**{limit: _default(limit) for limit in _LIMITS}, **engine.limits}
    return [*_rows("switch", engine.switches, Behaviour), *_rows("limit", limits, EngineConfig)]


def differences(name: str, against: str) -> list[Difference]:
    """What two presets set differently, in the order of the schema."""
    mine, theirs = ({row.name: row for row in rows(each)} for each in (name, against))
    return [
        Difference(key, row.kind, row.about, (row.value, theirs[key].value), (row.source, theirs[key].source))
        for key, row in mine.items()
        if row.value != theirs[key].value
    ]


def compared() -> list[tuple[str, list[Any]]]:
    """Name and values, by preset, of every switch and limit in which presets differ."""
    table = {name: {row.name: row.value for row in rows(name)} for name in NAMES}
    found = [(key, [table[name][key] for name in NAMES]) for key in table[NAMES[0]]]
    return [(key, values) for key, values in found if any(value != values[0] for value in values)]


def value_text(value: Any) -> str:
    """A value as people write it: ``yes``, ``1 to 512``, ``as max_model_len``."""
    if isinstance(value, AtLeast):
        return f"as {value.limit}, {value.least} at least"
    if isinstance(value, Unless):
        return f"{value.value} unless {value.limit} is set"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return f"{value[0]} to {value[-1]}" if value else "none"
    if value is None:
        return "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def data(name: str) -> dict[str, Any]:
    """A preset as plain data for machines."""
    engine = ENGINES[preset_of(name)]
    return {
        "preset": name,
        **_about(engine),
        "values": [asdict(row) | _plain(row.value) for row in rows(name)],
    }


def data_against(name: str, against: str) -> dict[str, Any]:
    """The differences between two presets as plain data."""
    found = differences(name, against)
    sides = [
        [
            {"preset": side} | _plain(each.values[i]) | {"source": each.sources[i]}
            for i, side in enumerate((name, against))
        ]
        for each in found
    ]
    return {
        "presets": [name, against],
        "differences": [
            {"name": each.name, "kind": each.kind, "about": each.about, "sides": pair}
            for each, pair in zip(found, sides, strict=True)
        ],
    }


def listing() -> dict[str, Any]:
    """All presets as plain data, and in what they differ."""
    return {
        "presets": [{"preset": name, **_about(ENGINES[name])} for name in NAMES],
        "differences": [
            {
                "name": key,
                "values": {name: _plain(value)["value"] for name, value in zip(NAMES, values, strict=True)},
            }
            for key, values in compared()
        ],
    }


def _default(limit: str) -> Sourced:
    return Sourced(EngineConfig.model_fields[limit].default, "no default of the engine's: leadline's own")


def _about(engine: EnginePreset) -> dict[str, str]:
    return {"engine": engine.engine, "version": engine.version, "about": engine.about}


def _plain(value: Any) -> dict[str, Any]:
    """A value that JSON can hold."""
    return {"value": value_text(value) if isinstance(value, AtLeast | Unless) else value}


def _rows(
    kind: Literal["switch", "limit"],
    values: Mapping[str, Sourced],
    model: type[Behaviour] | type[EngineConfig],
) -> Iterable[Row]:
    return [
        Row(name, kind, values[name].value, field.description or "", values[name].source)
        for name, field in model.model_fields.items()
        if name in values
    ]
