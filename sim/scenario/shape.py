"""Which models and types may stand at a path of the scenario, read off the models themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from sim.scenario.model import Scenario
from sim.scenario.nodes import KeyPath
from sim.scenario.policy_choice import OWN

Model = type[BaseModel]


def types_at(path: KeyPath, data: Any) -> list[Any]:
    """Types that the value at ``path`` may have: models, literals and plain types, unions opened."""
    types: list[Any] = [Scenario]
    for part in path:
        if isinstance(part, str):
            models = models_for(types, data)
            fields = [field for model in models if (field := field_of(model, part)) is not None]
            types = [kind for field in fields for kind in opened(field.annotation)] or _values_of(types)
        data = child(data, part)
    return types


def models_for(types: list[Any], data: Any) -> list[Model]:
    """The models among ``types`` whose telling key (``process``, ``policy``) agrees with the data."""
    models = [kind for kind in types if isinstance(kind, type) and issubclass(kind, BaseModel)]
    told = [model for model in models if _agrees(model, data)]
    return told or models


def _agrees(model: Model, data: Any) -> bool:
    """Whether every single-valued key of the model that the data has says the model's own value."""
    if not isinstance(data, dict):
        return False
    own = isinstance(data.get("policy"), str) and ":" in data["policy"]
    if "policy" in model.model_fields and not tags(model):
        return own
    return bool(tags(model)) and all(data.get(key) in values for key, values in tags(model).items())


def tags(model: Model) -> dict[str, tuple[Any, ...]]:
    """Keys of a model that tell it from its siblings, with the values it takes."""
    return {
        key: get_args(field.annotation)
        for key, field in model.model_fields.items()
        if get_origin(field.annotation) is Literal and len(get_args(field.annotation)) == 1
    }


def tag_values(types: list[Any]) -> tuple[str | None, list[str]]:
    """The telling key of a union of models and every value it takes."""
    models = models_for(types, None)
    key = next((key for model in models for key in tags(model)), None)
    values = [str(value) for model in models for value in tags(model).get(key or "", ())]
    return key, [*values, OWN] if key == "policy" else values


def field_of(model: Model, key: str) -> FieldInfo | None:
    """The field that a YAML key means, by its name or alias."""
    for name, field in model.model_fields.items():
        if (field.alias or name) == key:
            return field
    return None


def keys_of(models: list[Model]) -> list[str]:
    """Every YAML key that one of the models takes, in their order."""
    keys = [field.alias or name for model in models for name, field in model.model_fields.items()]
    return list(dict.fromkeys(keys))


def opened(annotation: Any) -> Iterator[Any]:
    """The alternatives of an annotation: unions, tuples, optionals and annotations opened."""
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from opened(get_args(annotation)[0])
    elif origin is None or origin is Literal or origin is dict:
        yield annotation
    else:
        for inner in get_args(annotation):
            if inner is not Ellipsis:
                yield from opened(inner)


def _values_of(types: list[Any]) -> list[Any]:
    """Types of a mapping's values."""
    return [kind for each in types if get_origin(each) is dict for kind in opened(get_args(each)[1])]


def child(data: Any, part: str | int) -> Any:
    """The item of plain data at one step of a path, or ``None``."""
    if isinstance(data, dict):
        return data.get(part)
    if isinstance(data, list) and isinstance(part, int) and part < len(data):
        return data[part]
    return None


def at(data: Any, path: KeyPath) -> Any:
    """The value of plain data at a path, or ``None``."""
    for part in path:
        data = child(data, part)
    return data
