"""What passes and the loop cost inside the engine, measured on requests of its own.

Calibration times passes alone. In the engine they take a little longer (other work lies between them),
and scheduling, laying out passes, asking the policy and keeping the books come on top. Both are fitted
to runs that nothing is predicted for: a factor on the passes of the target and of the drafter, and,
since policies take unlike times to decide, a loop for each policy: a part per step, per sequence and
per draft pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from calibrate.profile import Drafter, Profile, Term
from calibrate.validate.measures import priced_steps
from sim.against.adjust import draft_scaled, verify_scaled
from sim.cost.step_cost import StepCost
from sim.engine.simulate import Setup
from sim.results.run_records import RunRecords

SOURCE = "the reference engine's loop, least squares over the steps of runs of its own"

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class OwnRun:
    """One run to fit on, under one policy; ``cost`` prices passes as they were timed alone."""

    policy: str
    records: RunRecords
    cost: StepCost


@dataclass(frozen=True)
class Loop:
    """Nanoseconds of host work under one policy."""

    step_ns: float
    sequence_ns: float
    draft_pass_ns: float


@dataclass(frozen=True)
class Overhead:
    """Factors on passes timed alone, and the loop by policy."""

    verify: float
    draft: float
    loops: dict[str, Loop]

    def applied(self, setup: Setup, policy: str) -> Setup:
        """The run as the engine takes it under ``policy``."""
        loop = self.loops[policy]
        profile = with_loop(verify_scaled(setup.profile, self.verify), loop)
        drafter = setup.drafter and launched(draft_scaled(setup.drafter, self.draft), loop)
        return replace(setup, profile=profile, drafter=drafter)


def fit_overhead(runs: Sequence[OwnRun]) -> Overhead:
    """Factors as means over steps; the loop by non-negative least squares."""
    shares = [_shares(run) for run in runs]
    policies = dict.fromkeys(run.policy for run in runs)
    return Overhead(
        verify=_mean([verify for verify, _ in shares]),
        draft=_mean([draft for _, draft in shares]),
        loops={each: _fit_loop([run.records for run in runs if run.policy == each]) for each in policies},
    )


def _shares(run: OwnRun) -> tuple[Floats, Floats]:
    """Taken over priced, of every step's target pass and of its drafter's passes."""
    priced, steps = priced_steps(run.records, run.cost), run.records.steps
    drafts = steps["draft_passes"] > 0
    return steps["verify_ns"] / priced[:, 0], steps["draft_ns"][drafts] / priced[drafts, 2]


def _mean(shares: list[Floats]) -> float:
    every = np.concatenate(shares)
    return float(every.mean()) if len(every) else 1.0


def _fit_loop(runs: list[RunRecords]) -> Loop:
    steps = [run.steps for run in runs]
    host, sequences, passes = (
        np.concatenate([each[name] for each in steps]).astype(float)
        for name in ("host_ns", "sequences", "draft_passes")
    )
    found, _ = nnls(np.stack([np.ones(len(host)), sequences, passes], 1), host)
    return Loop(*(float(each) for each in found))


def with_loop(profile: Profile, loop: Loop) -> Profile:
    """The same profile with the loop's part of every step."""
    term = _term("engine loop", loop.step_ns, loop.sequence_ns)
    target = profile.target.model_copy(update={"host": (*profile.target.host, term)})
    return profile.model_copy(update={"target": target, "seal": {}})


def launched(drafter: Drafter, loop: Loop) -> Drafter:
    """The same drafter with the loop's part of every pass."""
    term = _term("laying out", loop.draft_pass_ns)
    exact = {name: (*terms, term) for name, terms in drafter.exact.items()}
    further = (*drafter.next, term) if drafter.next else ()
    return drafter.model_copy(update={"first": (*drafter.first, term), "next": further, "exact": exact})


def _term(name: str, fixed_ns: float, sequence_ns: float = 0.0) -> Term:
    return Term(
        name=name, mark="measured", source=SOURCE, fixed_ns=fixed_ns, per_ns={"sequences": sequence_ns}
    )
