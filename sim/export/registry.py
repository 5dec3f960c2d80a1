"""Every engine that settings are written for: one line each."""

from __future__ import annotations

from typing import Final

from sim.errors import InputError
from sim.export import llamacpp, sglang, trtllm, vllm
from sim.export.settings import Engine
from sim.scenario.words import did_you_mean

ENGINES: Final[dict[str, Engine]] = {
    "vllm": vllm,
    "sglang": sglang,
    "trtllm": trtllm,
    "llamacpp": llamacpp,
}


def engine(name: str) -> Engine:
    """The engine of that name; raises ``InputError`` naming those that exist."""
    if name not in ENGINES:
        raise InputError(f"there is no engine {name!r}{did_you_mean(name, ENGINES)}")
    return ENGINES[name]
