"""The report: ``build(results)`` gives plain data, the others write it in their form."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sim.report.assemble import build
    from sim.report.page import html
    from sim.report.pictures import png
    from sim.report.plain import json, markdown

__all__ = ["build", "html", "json", "markdown", "png"]

_HOMES = {"build": "assemble", "html": "page", "json": "plain", "markdown": "plain", "png": "pictures"}


def __getattr__(name: str) -> Any:
    """Import late, so that ``leadline --help`` need not."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
