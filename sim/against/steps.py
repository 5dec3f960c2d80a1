"""Whether steps take the time they should, and what alone would explain it if not.

A constant in every step is the host's; a factor on the target's passes is the step cost, since
passes grow with the load; a factor on the drafter's passes shows where depths differ. With one load,
or loads whose steps are alike, they cannot be told apart, and that is what is said.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from sim.against.adjust import Adjustment
from sim.against.bench import Bench
from sim.against.compare import step_error, step_ms
from sim.against.finding import Finding
from sim.against.solve import Floats, solve

_APART: Final = 6.0
"""Difference of chi-squared between two explanations that decides for one (odds of 20 to 1)."""
_FITS: Final = 1.5
"""Largest remaining difference, in tolerances, of an explanation that holds."""
_SUSPECTS: Final = {"verify": "step cost", "overhead": "host overhead", "draft": "drafting cost"}


@dataclass(frozen=True)
class _Explanation:
    """One suspect alone, at its best: how far each run is off then, in tolerances."""

    name: str
    adjustment: Adjustment
    left: Floats

    @property
    def chi_squared(self) -> float:
        """A tolerance is three standard deviations of chance, or stands for as much."""
        return float((9 * self.left**2).sum())

    @property
    def fits(self) -> bool:
        """Whether it explains every run."""
        return bool(np.abs(self.left).max() <= _FITS)

    @property
    def words(self) -> str:
        """Its size, for people."""
        if self.name == "overhead":
            return f"{self.adjustment.overhead_ms:+.2f} ms in every step"
        which = "target's" if self.name == "verify" else "drafter's"
        return f"the {which} passes x {getattr(self.adjustment, self.name):.3g}"


def steps(bench: Bench, tolerance: Mapping[str, float], corrected: Adjustment) -> tuple[Finding, Adjustment]:
    """The finding, and the adjustment with the best explanation in it."""
    runs = [n for n in range(len(bench.runs)) if step_ms(bench, n, bench.runs[n].metrics)]
    if not runs:
        text = "no file tells a step's time: TPOT, and with drafts a count of them or of chunks"
        return Finding("step cost", "cannot tell", text), corrected
    allowed = np.array([_allowed(bench, n, tolerance) for n in runs])

    def left(adjustment: Adjustment) -> Floats:
        errors = [step_error(bench, n, bench.sketched(n, adjustment)) for n in runs]
        return np.asarray(np.array(errors, dtype=np.float64) / allowed)

    evidence = tuple(_step_line(bench, n, corrected) for n in runs)
    if np.abs(left(corrected)).max() <= 1:
        return Finding("step cost", "looks right", "steps take what they should", evidence), corrected
    tried = [_explained(bench, name, left, corrected) for name in _suspects(bench, runs)]
    return _decide(sorted(tried, key=lambda each: each.chi_squared), evidence + _stated(bench))


def _allowed(bench: Bench, number: int, tolerance: Mapping[str, float]) -> float:
    """What a step's time may be off: as its parts are."""
    known = bench.runs[number].metrics
    parts = ("tpot_mean_ms", "tpot_by_token_mean_ms", "itl_mean_ms")
    return max(tolerance[name] for name in parts if name in known)


def _suspects(bench: Bench, runs: Sequence[int]) -> list[str]:
    """Drafting is tried where depths differ: at one depth it is a part of the step like any other."""
    depths = {bench.policies[n].title for n in runs}
    return ["verify", "overhead", *(["draft"] if len(depths) > 1 else [])]


def _explained(
    bench: Bench, name: str, left: Callable[[Adjustment], Floats], start: Adjustment
) -> _Explanation:
    found = solve(bench, [name], left, start)
    return _Explanation(name, found.adjustment, found.residuals)


def _decide(tried: Sequence[_Explanation], evidence: tuple[str, ...]) -> tuple[Finding, Adjustment]:
    """Name the best explanation, or those that explain the runs alike; ``tried`` has the best first."""
    best, *others = tried
    alike = [best, *(each for each in others if each.chi_squared - best.chi_squared < _APART)]
    evidence = (*evidence, *map(_tried_line, tried))
    if not best.fits:
        text = "steps differ, but no constant and no factor explains every run: the shape differs"
        return Finding("step cost", "points here", text, evidence), best.adjustment
    names = " or ".join(_SUSPECTS[each.name] for each in alike)
    sizes = " or ".join(each.words for each in alike)
    if len(alike) > 1:
        text = f"{sizes} would explain it alike; measure at loads whose steps differ more in length"
        return Finding(names, "cannot tell", text, evidence), best.adjustment
    return Finding(names, "points here", f"{sizes} would agree", evidence), best.adjustment


def _tried_line(each: _Explanation) -> str:
    return f"{each.words}: leaves differences of up to {np.abs(each.left).max():.1f} tolerances"


def _stated(bench: Bench) -> tuple[str, ...]:
    error = bench.stated_error
    return (f"the profile itself states its steps to +-{error:.0%}",) if error else ()


def _step_line(bench: Bench, number: int, adjustment: Adjustment) -> str:
    measured = step_ms(bench, number, bench.runs[number].metrics)
    found = step_ms(bench, number, bench.simulated(number, adjustment).mean)
    assert measured is not None
    assert found is not None
    change = f"{measured - found:+.2f} ms, {measured / found - 1:+.1%}"
    return f"{bench.runs[number].label}: step {measured:.2f} ms measured, {found:.2f} simulated ({change})"
