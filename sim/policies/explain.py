"""What each policy is, from its own docstrings and parameters, for people."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterator

from pydantic.fields import FieldInfo
from pydantic_core import to_jsonable_python

from sim.errors import InputError
from sim.policies.config import PolicyConfig
from sim.policies.custom import CustomConfig
from sim.policies.registry import POLICIES

_KNOWN: dict[str, type[PolicyConfig]] = {**POLICIES, "module:Class": CustomConfig}


def summaries() -> dict[str, str]:
    """One line per policy, in the registry's order."""
    return {name: (config.__doc__ or "").partition("\n")[0] for name, config in _KNOWN.items()}


def explain(name: str) -> str:
    """Rule, source and parameters of one policy; ``InputError`` if there is none of that name."""
    if name not in _KNOWN:
        near = difflib.get_close_matches(name, _KNOWN, 1)
        hint = f"did you mean {near[0]!r}?" if near else "leadline policies lists them"
        raise InputError(f"there is no policy {name!r}; {hint}")
    config = _KNOWN[name]
    about = sys.modules[config.__module__].__doc__ or config.__doc__ or ""
    plain = about.strip().replace("``", "`").replace("**", "")
    return "\n".join([plain, "", "Parameters:", *_parameters(config)])


def _parameters(config: type[PolicyConfig]) -> Iterator[str]:
    """One line each: name, default or ``needed``, and what it is."""
    for key, field in config.model_fields.items():
        if key != "policy":
            yield f"  {key} ({_default(field)}): {field.description or 'see above'}"


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "needed"
    value = field.get_default(call_default_factory=True)
    return "none" if value is None else f"default {to_jsonable_python(value)}"
