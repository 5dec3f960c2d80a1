"""Which parameter the difference points to, with the numbers that say so.

Each suspect is tried alone: lengths by token counts, acceptance by tokens per round, costs by how a
step's time differs from load to load, queueing by TTFT and by how many sequences decode. A suspect
is named where it explains the difference within its noise and the others do not; where two explain
it alike, both are named and nothing is decided. One that is named is corrected before the next is
looked at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp, log

import numpy as np

from sim.against import queueing, steps
from sim.against.adjust import UNCHANGED, Adjustment
from sim.against.bench import Bench
from sim.against.compare import acceptance_error, accepted_by, lines, tolerances
from sim.against.finding import Diagnosis, Finding
from sim.against.measured import label_of
from sim.against.solve import solve
from sim.errors import InputError


def diagnose(bench: Bench) -> Diagnosis:
    """Try every suspect in turn."""
    tolerance = tolerances(bench)
    accepted, corrected = _acceptance(bench, tolerance)
    limited, corrected = queueing.limit(bench, corrected)
    stepped, corrected = steps.steps(bench, tolerance, corrected)
    waiting = limited or queueing.waiting(bench, tolerance, corrected)
    return Diagnosis((_lengths(bench, tolerance), accepted, stepped, waiting))


def _lengths(bench: Bench, tolerance: Mapping[str, float]) -> Finding:
    names = ("prompt_tokens_mean", "output_tokens_mean")
    found = tuple(
        f"{bench.runs[n].label}: {label_of(line.metric)} {line.measured:.4g} measured, "
        f"{line.simulated:.4g} simulated"
        for n in range(len(bench.runs))
        for line in lines(bench, n)
        if line.metric in names and abs(log(line.measured / line.simulated)) > tolerance[line.metric]
    )
    if found:
        text = "the requests are not those that were measured; all else is doubtful until they are"
        return Finding("lengths", "points here", text, found)
    return Finding("lengths", "looks right", "requests have the measured numbers of tokens")


def _acceptance(bench: Bench, tolerance: Mapping[str, float]) -> tuple[Finding, Adjustment]:
    drafting = [n for n in range(len(bench.runs)) if bench.drafts(n)]
    known = [n for n in drafting if accepted_by(bench, n)]
    if not drafting:
        return Finding("acceptance", "looks right", "no run speculates"), UNCHANGED
    if not known:
        text = "no file counts accepted drafts or chunks: lower acceptance and dearer steps look alike"
        return Finding("acceptance", "cannot tell", text), UNCHANGED
    mean = float(np.mean([_accepted(bench, n, UNCHANGED) for n in known]))
    allowed = max(tolerance[str(accepted_by(bench, n))] for n in known)
    evidence = tuple(_accepted_line(bench, n) for n in known)
    if abs(mean) > allowed:
        return _shift(bench, known, exp(mean) - 1, evidence)
    text = f"tokens per round differ by {exp(mean) - 1:+.1%}, within {allowed:.1%}"
    return Finding("acceptance", "looks right", text, evidence), UNCHANGED


def _shift(
    bench: Bench, known: Sequence[int], more: float, evidence: tuple[str, ...]
) -> tuple[Finding, Adjustment]:
    """How far the log odds of acceptance would have to move; a recorded trace cannot move."""
    text = f"rounds give {more:+.1%} tokens against the simulated ones"
    try:
        found = solve(bench, ["acceptance"], lambda a: np.array([_accepted(bench, n, a) for n in known]))
    except InputError:
        return Finding("acceptance", "points here", text, evidence), UNCHANGED
    text = f"{text}; {found.adjustment.acceptance:+.2f} in the log odds of acceptance would agree"
    return Finding("acceptance", "points here", text, evidence), found.adjustment


def _accepted(bench: Bench, number: int, adjustment: Adjustment) -> float:
    error = acceptance_error(bench, number, bench.sketched(number, adjustment))
    assert error is not None
    return error


def _accepted_line(bench: Bench, number: int) -> str:
    name = str(accepted_by(bench, number))
    measured, simulated = bench.runs[number].metrics[name], bench.simulated(number).mean[name]
    return f"{bench.runs[number].label}: {label_of(name)} {measured:.3f} measured, {simulated:.3f} simulated"
