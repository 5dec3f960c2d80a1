"""Sweeps: what is run, where, and what it leaves behind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from sim.sweep.prepare import make_run
    from sim.sweep.results import Finished, Results
    from sim.sweep.run import run_scenario, run_shard
    from sim.sweep.saved import open_results, save

__all__ = ["Finished", "Results", "make_run", "open_results", "run_scenario", "run_shard", "save"]
_HOMES: Final = {
    "make_run": "prepare",
    "Finished": "results",
    "Results": "results",
    "run_scenario": "run",
    "run_shard": "run",
    "open_results": "saved",
    "save": "saved",
}


def __getattr__(name: str) -> Any:
    """Import a public name with its first use, so that the command line starts at once."""
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
