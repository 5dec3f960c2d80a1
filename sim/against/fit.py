"""Adjust a few numbers on part of the runs, and measure what that is worth on the rest.

Fitted are the time of a step (``compare.step_ms``) and tokens per round, which no queue moves; TTFT,
E2EL and throughput are left as checks. Loads alternate between fitting and holding out, policy by
policy, repetitions of one load together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from sim.against.adjust import PARAMETERS, UNCHANGED, Adjustment
from sim.against.bench import Bench
from sim.against.compare import (
    acceptance_error,
    accepted_by,
    least,
    lines,
    step_error,
    step_ms,
)
from sim.against.solve import Floats, Solution, shortest_step_ms, solve
from sim.errors import InputError
from sim.units import NS_PER_MS

CHECKED: Final = ("tpot_mean_ms", "ttft_mean_ms", "e2el_mean_ms", "output_tokens_per_s", "acceptance_length")
"""What the tables of a fit show."""
_ALIKE: Final = 0.95
"""Correlation from which on two numbers cannot be told apart."""


@dataclass(frozen=True)
class Parameter:
    """One fitted number: its value and its standard error, in its own unit."""

    name: str
    value: float
    error: float

    @property
    def needed(self) -> bool:
        """Whether it differs from no change by more than two standard errors."""
        unchanged = 1.0 if self.name in ("verify", "draft") else 0.0
        return abs(self.value - unchanged) > 2 * self.error


@dataclass(frozen=True)
class Fit:
    """The adjustment, what it was fitted on, and what was held out (numbers of runs)."""

    bench: Bench
    adjustment: Adjustment
    parameters: tuple[Parameter, ...]
    fitted: tuple[int, ...]
    held_out: tuple[int, ...]
    notes: tuple[str, ...]

    def error(self, metric: str, numbers: Sequence[int], adjusted: bool) -> float:
        """Mean absolute error of a metric over some runs; NaN where none has it."""
        adjustment = self.adjustment if adjusted else UNCHANGED
        found = [
            abs(line.error)
            for n in numbers
            for line in lines(self.bench, n, self.bench.simulated(n, adjustment))
            if line.metric == metric
        ]
        return float(np.mean(found)) if found else float("nan")


def fit(bench: Bench, names: Sequence[str] | None = None) -> Fit:
    """Fit the named numbers, by default all that the runs may tell; ``InputError`` for unknown ones."""
    unknown = [name for name in names or () if name not in PARAMETERS]
    if unknown:
        raise InputError(f"--adjust: {unknown[0]!r} is none of {', '.join(PARAMETERS)}")
    fitted, held_out = split(bench)
    chosen = _of_use(bench, fitted, names)
    lowest = -bench.scenario.engine.step_overhead / NS_PER_MS
    found = solve(bench, chosen, lambda a: _residuals(bench, fitted, a), least_overhead_ms=lowest)
    parameters = _parameters(bench, chosen, found)
    notes = _notes(bench, parameters, found, held_out, names)
    return Fit(bench, found.adjustment, parameters, fitted, held_out, notes)


def split(bench: Bench) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Numbers of the runs to fit and to hold out: loads in order, every second one held out."""
    fitted: list[int] = []
    for policy in dict.fromkeys(policy.title for policy in bench.policies):
        own = [n for n in range(len(bench.runs)) if bench.policies[n].title == policy]
        loads = sorted({bench.runs[n].load.order for n in own})
        fitted += [n for n in own if loads.index(bench.runs[n].load.order) % 2 == 0]
    return tuple(sorted(fitted)), tuple(n for n in range(len(bench.runs)) if n not in fitted)


def _of_use(bench: Bench, fitted: Sequence[int], names: Sequence[str] | None) -> list[str]:
    """The parameters that the runs say anything about."""
    timed = any(step_ms(bench, n, bench.runs[n].metrics) for n in fitted)
    accepted = any(accepted_by(bench, n) for n in fitted)
    able = [
        *(["overhead", "verify"] if timed else []),
        *(["draft"] if timed and any(bench.drafts(n) for n in fitted) else []),
        *(["acceptance"] if accepted else []),
    ]
    default = [name for name in able if name != "draft" or _depths(bench, fitted) > 1]
    missing = [name for name in names or () if name not in able]
    if missing or not default:
        raise InputError(
            f"--adjust: the runs say nothing about {missing[0] if missing else 'any parameter'}; they need "
            "TPOT, and with drafts acceptance counters or ITL"
        )
    return list(names or default)


def _depths(bench: Bench, numbers: Sequence[int]) -> int:
    return len({bench.policies[n].title for n in numbers})


def _residuals(bench: Bench, numbers: Sequence[int], adjustment: Adjustment) -> Floats:
    """Step times and tokens per round, each in units of what never means anything."""
    found = []
    for n in numbers:
        simulated = bench.sketched(n, adjustment)
        stepped, accepted = step_error(bench, n, simulated), acceptance_error(bench, n, simulated)
        if stepped is not None:
            found.append(stepped / least("tpot_mean_ms"))
        if accepted is not None:
            found.append(accepted / least(str(accepted_by(bench, n))))
    return np.array(found, dtype=np.float64)


def _parameters(bench: Bench, names: Sequence[str], found: Solution) -> tuple[Parameter, ...]:
    """Values with standard errors, each in its own unit."""
    a, unit = found.adjustment, shortest_step_ms(bench)
    by_name = {
        "overhead": (a.overhead_ms, unit),
        "verify": (a.verify, a.verify),
        "draft": (a.draft, a.draft),
        "acceptance": (a.acceptance, 1.0),
    }
    return tuple(
        Parameter(name, by_name[name][0], by_name[name][1] * error)
        for name, error in zip(names, found.errors, strict=True)
    )


def _notes(
    bench: Bench,
    parameters: Sequence[Parameter],
    found: Solution,
    held_out: Sequence[int],
    names: Sequence[str] | None,
) -> tuple[str, ...]:
    notes = []
    if found.correlation > _ALIKE:
        notes.append(
            f"{found.alike[0]} and {found.alike[1]} cannot be told apart on these runs (correlation "
            f"{found.correlation:.2f}); trust what they give together, not each"
        )
    idle = [each.name for each in parameters if not each.needed]
    if idle:
        notes.append(f"no different from no change: {', '.join(idle)}; leave out with --adjust")
    if not held_out:
        notes.append("one load, so nothing is held out: the errors are those of the fit itself")
    tried = {each.name for each in parameters}
    if names is None and "draft" not in tried and any(map(bench.drafts, range(len(bench.runs)))):
        notes.append("runs of one depth cannot tell the drafter's passes from the target's: draft is left")
    return tuple(notes)
