"""Pydantic's errors in our words: what is wrong; what would be right."""

from __future__ import annotations

import re
from typing import Any, Final

from pydantic_core import ErrorDetails

from sim.scenario.nodes import Finding, KeyPath
from sim.scenario.shape import at, field_of, keys_of, models_for, tag_values, types_at
from sim.scenario.words import closest, listed, shown

_WANTED: Final = {
    "int": "write a whole number",
    "float": "write a number",
    "string": "write text (in quotes if it looks like a number)",
    "bool": "write true or false",
    "dict": "write 'key: value' lines",
    "model": "write 'key: value' lines",
    "tuple": "write a list such as [1, 2]",
    "list": "write a list such as [1, 2]",
}
_OTHERS: Final = {
    "finite_number": "is {shown}; it must be finite",
    "int_from_float": "is {shown}; write a whole number",
    "too_short": "holds {actual_length} values; it needs at least {min_length}",
    "too_long": "holds too many values; it takes {max_length}",
    "string_too_short": "is empty; write a name",
    "string_pattern_mismatch": "{shown} has the wrong form; it must match {pattern}",
}
_FEW: Final = 12
_MANY: Final = "those that 'leadline policies' lists"

_LIMITS: Final = (
    ("ge", "at least {}"),
    ("gt", "above {}"),
    ("le", "at most {}"),
    ("lt", "below {}"),
    ("multiple_of", "a multiple of {}"),
)
_ELSEWHERE: Final = {
    "num_speculative_tokens": "k",
    "num_steps": "k",
    "gamma": "k",
    "qps": "request_rate",
    "rps": "request_rate",
    "rate": "request_rate",
    "concurrency": "max_concurrency",
    "users": "max_concurrency",
    "max_batch_size": "max_num_seqs",
    "max_running_requests": "max_num_seqs",
    "chunked_prefill_size": "max_num_batched_tokens",
    "speculative_disable_by_batch_size": "threshold",
    "num_prompts": "num_requests",
    "prompt": "input",
    "latency": "e2el",
    "hardware": "profile",
    "gpu": "profile",
    "traffic": "workload",
    "draft_model": "drafter",
    "model": "profile",
    "seed": "seeds",
    "alpha": "mean",
}
"""Words of other tools, and what they are called here."""

_ITL = "is not a limit here, since gaps between chunks grow with every accepted draft; limit tpot"


def finding(error: ErrorDetails, data: Any) -> Finding:
    """One error of ``Scenario.model_validate(data)`` at its place in the data."""
    path, kind, last = _path(error, data), error["type"], error["loc"][-1]
    if kind == "missing" and isinstance(last, int):
        return Finding(path, f"holds {last} values; it needs at least {last + 1}")
    if kind == "missing":
        return _missing(path, str(last), data)
    if kind == "extra_forbidden":
        return Finding(path, _unknown(path, data), at_key=True)
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        return _untold(path, data)
    return Finding(path, _message(error))


def _path(error: ErrorDetails, data: Any) -> KeyPath:
    """Place of an error in the data: its location without union tags and missing keys."""
    path: KeyPath = ()
    for part in error["loc"]:
        inside = (
            part in data if isinstance(data, dict) else isinstance(data, list) and part in range(len(data))
        )
        if inside:
            path, data = (*path, part), data[part]
    return path


def _missing(path: KeyPath, key: str, data: Any) -> Finding:
    value = at(data, path)
    told = {"policy": value} if isinstance(value, str) else value
    for model in models_for(types_at(path, data), told):
        field = field_of(model, key)
        if field is not None and field.description:
            return Finding(path, f"is missing; add it: {field.description}", True, (*path, key))
    return Finding(path, "is missing; add it", True, (*path, key))


def _unknown(path: KeyPath, data: Any) -> str:
    key = str(path[-1])
    keys = keys_of(models_for(types_at(path[:-1], data), at(data, path[:-1])))
    if key == "itl" and "tpot" in keys:
        return _ITL
    elsewhere = _ELSEWHERE.get(key.lower().replace("-", "_"))
    near = elsewhere if elsewhere in keys else closest(key, keys)
    if near is not None:
        return f"is not a key here; did you mean {near!r}?"
    return f"is not a key here; the keys are {', '.join(keys)}"


def _untold(path: KeyPath, data: Any) -> Finding:
    """A union whose telling key is missing or says something unknown."""
    key, known = tag_values(types_at(path, data))
    value = at(data, path)
    if isinstance(value, dict) and key is not None:
        if key not in value:
            return Finding(path, f"is missing; write one of {_options(known)}", True, (*path, key))
        path, value = (*path, key), value[key]
    elif not isinstance(value, str) or key != "policy":
        return Finding(path, f"is {shown(value)}; write a mapping with {key}: {_one_of(known)}")
    return Finding(path, _choice(value, known))


def _choice(value: Any, known: list[str]) -> str:
    near = closest(value, known) if isinstance(value, str) else None
    if near is not None:
        return f"{shown(value)} is unknown; did you mean {near!r}?"
    return f"{shown(value)} is unknown; write one of {_options(known)}"


def _options(known: list[str]) -> str:
    """All of a few, or where many are listed."""
    return _MANY if len(known) > _FEW else ", ".join(known)


def _one_of(known: list[str]) -> str:
    return f"one of {_MANY}" if len(known) > _FEW else listed(known)


def _message(error: ErrorDetails) -> str:
    kind, value, context = error["type"], error["input"], error.get("ctx", {})
    if kind in ("value_error", "assertion_error"):
        return error["msg"].split(", ", 1)[1]
    if kind == "warmup_form":
        return f"{shown(value)} {error['msg']}"
    if kind == "literal_error":
        return _choice(value, re.findall(r"'([^']*)'", context["expected"]))
    for name, wording in _LIMITS:
        if name in context:
            return f"is {shown(value)}; it must be {wording.format(shown(context[name]))}"
    return _general(kind, value, context)


def _general(kind: str, value: Any, context: dict[str, Any]) -> str:
    if kind in _OTHERS:
        return _OTHERS[kind].format(shown=shown(value), **context)
    wanted = next((words for name, words in _WANTED.items() if kind.startswith(name)), None)
    return f"is {shown(value)}; {wanted or 'see docs/scenarios.md'}"


def flags(data: Any, path: KeyPath) -> str | None:
    """What is wrong with ``true`` or ``false`` where a number belongs (pydantic reads it as 1 or 0)."""
    types = types_at(path, data)
    numbers = [kind for kind in types if kind in (int, float)]
    if numbers and bool not in types:
        return f"is {shown(at(data, path))}; write a {'whole ' if float not in numbers else ''}number"
    return None
