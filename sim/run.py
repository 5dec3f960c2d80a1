"""Names of ``sim.sweep`` under the module where they used to be."""

from __future__ import annotations

from sim.sweep.prepare import NO_DRAFTS, make_run, prepare
from sim.sweep.results import Finished, Results
from sim.sweep.run import run_scenario

__all__ = ["NO_DRAFTS", "Finished", "Results", "make_run", "prepare", "run_scenario"]
