"""Random settings of every switch, drawn from the switches themselves: a new one is drawn unasked."""

from __future__ import annotations

from typing import Any, Literal, get_args, get_origin

from annotated_types import Ge, Le
from hypothesis import strategies as st
from pydantic.fields import FieldInfo

from sim.engine.behaviour import Behaviour

CAPTURES = ((), (1, 2, 4, 8, 16, 64))


def values_of(field: FieldInfo) -> st.SearchStrategy[Any]:
    """Values of one switch, by its type; raises ``TypeError`` for a type that nobody has drawn yet."""
    if field.annotation is bool:
        return st.booleans()
    if get_origin(field.annotation) is Literal:
        return st.sampled_from(get_args(field.annotation))
    low = next((mark.ge for mark in field.metadata if isinstance(mark, Ge)), 0)
    high = next((mark.le for mark in field.metadata if isinstance(mark, Le)), 3)
    if field.annotation is int:
        return st.integers(int(low), min(int(high), int(low) + 3))  # type: ignore[call-overload]
    if field.annotation is float:
        return st.sampled_from([float(low), (float(low) + float(high)) / 2, float(high)])  # type: ignore[arg-type]
    if field.annotation == tuple[int, ...]:
        return st.sampled_from(CAPTURES)
    raise TypeError(f"no values are drawn of {field.annotation}; add a line here")


def behaviours(**fixed: Any) -> st.SearchStrategy[dict[str, Any]]:
    """Any mixture of switches, some of them fixed."""
    drawn = {name: values_of(field) for name, field in Behaviour.model_fields.items()}
    return st.fixed_dictionaries(drawn | {name: st.just(value) for name, value in fixed.items()})
