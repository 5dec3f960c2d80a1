"""Runs of the shipped situation scenarios, each made once per process."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from sim.results.compare import PolicyResult
from sim.scenario.load import load_scenario
from sim.scenario.model import Scenario
from sim.sweep import Results, run_scenario

ROOT = Path(__file__).resolve().parents[2]
SCENARIOS = ROOT / "scenarios" / "situations"


def scenario(name: str, **overrides: object) -> Scenario:
    """A shipped situation; ``engine__max_num_seqs=8`` sets ``engine.max_num_seqs``."""
    values = {key.replace("__", "."): value for key, value in overrides.items()}
    return load_scenario(SCENARIOS / f"{name}.yaml", values)


@lru_cache
def results(name: str) -> Results:
    """All runs of one situation."""
    return run_scenario(scenario(name))


def value(name: str, policy: str, metric: str, load: str = "base") -> float:
    """Mean over seeds of one metric of one policy at one load."""
    cell = next(cell for cell in results(name).comparison.cells if cell.load == load)
    return cell.policy(policy).mean(metric)


def ratios(name: str, policy: str, metric: str, loads: tuple[str, ...]) -> tuple[float, ...]:
    """Policy over ``off`` at each load."""
    return tuple(value(name, policy, metric, at) / value(name, "off", metric, at) for at in loads)


def changed(name: str, **overrides: object) -> dict[tuple[str, str], PolicyResult]:
    """A situation with something changed: results by load and policy."""
    cells = run_scenario(scenario(name, **overrides)).comparison.cells
    return {(cell.load, each.label): each for cell in cells for each in cell.policies}


def rates(
    name: str, metric: str = "output_tokens_per_s", **overrides: object
) -> dict[tuple[str, str], float]:
    """One metric of a changed situation, mean over seeds, by load and policy."""
    return {at: each.mean(metric) for at, each in changed(name, **overrides).items()}
