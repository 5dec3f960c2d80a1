"""A process that a file states by itself: what ``fit`` prints, as YAML or JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from pydantic import TypeAdapter, ValidationError

from sim.acceptance.config import AcceptanceConfig
from sim.errors import InputError

_ADAPTER: TypeAdapter[Any] = TypeAdapter(AcceptanceConfig)


def acceptance_in(path: Path) -> AcceptanceConfig | None:
    """The ``acceptance:`` of a file that has no workload; ``None`` for a scenario or anything else."""
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return None
    if not isinstance(data, dict) or "workload" in data or "acceptance" not in data:
        return None
    return validated(str(path), data["acceptance"])


def validated(place: str, data: object) -> AcceptanceConfig:
    """Plain data as a configuration; ``InputError`` names the key that is wrong."""
    try:
        config: AcceptanceConfig = _ADAPTER.validate_python(data)
    except ValidationError as error:
        wrong = "; ".join(
            f"{'.'.join(['acceptance', *map(str, each['loc'])])}: {each['msg']}" for each in error.errors()
        )
        raise InputError(f"{place}: {wrong}") from None
    return config
