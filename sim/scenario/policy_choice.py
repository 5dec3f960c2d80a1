"""One entry of ``policies:``: a name, or a mapping whose ``policy`` tells which parameters it takes."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import BeforeValidator, Discriminator, GetJsonSchemaHandler, Tag
from pydantic_core import CoreSchema

from sim.policies.config import PolicyConfig
from sim.policies.custom import CustomConfig
from sim.policies.registry import POLICIES

OWN: Final = "module:Class"
"""How messages call a policy of the user's own."""


def takes_nothing(config: type[PolicyConfig]) -> bool:
    """Whether the policy's bare name is enough."""
    return not any(field.is_required() for key, field in config.model_fields.items() if key != "policy")


def _from_name(value: Any) -> Any:
    return {"policy": value} if isinstance(value, str) else value


def _which(value: Any) -> str | None:
    name = value.get("policy") if isinstance(value, dict) else getattr(value, "policy", None)
    if not isinstance(name, str):
        return None
    return OWN if ":" in name else name


class _OrName:
    """Adds the bare names to the JSON Schema, for the policies that need no parameter."""

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        forms = handler(core)
        bare = [name for name, config in POLICIES.items() if takes_nothing(config)]
        own = {"type": "string", "pattern": r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$"}
        return {"anyOf": [{"type": "string", "enum": bare}, own, *forms.get("oneOf", [forms])]}


if TYPE_CHECKING:
    PolicyChoice = PolicyConfig
else:
    _CONFIGS = {**POLICIES, OWN: CustomConfig}
    PolicyChoice = Annotated[
        reduce(or_, (Annotated[config, Tag(name)] for name, config in _CONFIGS.items())),
        Discriminator(_which),
        BeforeValidator(_from_name),
        _OrName,
    ]
