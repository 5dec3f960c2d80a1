"""leadline: how deep to speculate, from calibrated step costs and your traffic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from sim.api import Ablation, Results, Scenario, ablate, check, load, open_results, run, run_part

__version__ = "0.1.0"
__all__ = ["Ablation", "Results", "Scenario", "ablate", "check", "load", "open_results", "run", "run_part"]
_PUBLIC: Final = frozenset(__all__)


def __getattr__(name: str) -> Any:
    """Import ``sim.api`` with the first use of one of its names, so that the command line starts at once."""
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from sim import api

    return getattr(api, name)
