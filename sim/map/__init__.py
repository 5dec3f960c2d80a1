"""The crossover map: which policy, and which depth, over load, acceptance, context and output length.

``build`` simulates one, ``read`` and ``write`` keep it as ``map.json``. They are imported when they
are asked for, so that ``leadline --help`` stays quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sim.map.file import read, write
    from sim.map.make import build

__all__ = ["build", "read", "write"]


def __getattr__(name: str) -> Any:
    if name == "build":
        from sim.map.make import build

        return build
    if name in ("read", "write"):
        from sim.map import file

        return getattr(file, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
