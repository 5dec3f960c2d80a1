"""What passes and the loop cost inside the engine, measured on requests of its own.

Calibration times passes alone. In the engine they take a little longer (other work lies between them),
and scheduling, laying out passes, asking the policy and keeping the books come on top. Both are fitted
to runs that nothing is predicted for: a factor on the passes of the target, with a part per token and
per sequence beside it, a factor on those of the drafter, and, since policies take unlike times to
decide, a loop for each policy: a part per step, per sequence and per draft pass.
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
    """Factors on passes timed alone, what the target's take beyond, and the loop by policy."""

    verify: float
    draft: float
    loops: dict[str, Loop]
    token_ns: float = 0.0
    sequence_ns: float = 0.0

    def applied(self, setup: Setup, policy: str) -> Setup:
        """The run as the engine takes it under ``policy``."""
        loop = self.loops[policy]
        profile = with_loop(self._verify(setup.profile), loop)
        drafter = setup.drafter and launched(draft_scaled(setup.drafter, self.draft), loop)
        return replace(setup, profile=profile, drafter=drafter)

    def _verify(self, profile: Profile) -> Profile:
        per_ns = {"tokens": self.token_ns, "sequences": self.sequence_ns}
        term = Term(name="in the engine", mark="measured", source=SOURCE, per_ns=per_ns)
        scaled = verify_scaled(profile, self.verify)
        more = {"verify": (*scaled.target.verify, term)}
        return scaled.model_copy(update={"target": scaled.target.model_copy(update=more)})


def fit_overhead(runs: Sequence[OwnRun]) -> Overhead:
    """Least squares of relative errors over all steps, no coefficient negative."""
    verify, token_ns, sequence_ns = _fit(
        np.concatenate([run.records.steps["verify_ns"] for run in runs]),
        np.concatenate([priced_steps(run.records, run.cost)[:, 0] for run in runs]),
        *(np.concatenate([run.records.steps[name] for run in runs]) for name in ("tokens", "sequences")),
    )
    policies = dict.fromkeys(run.policy for run in runs)
    loops = {each: _fit_loop([run.records for run in runs if run.policy == each]) for each in policies}
    return Overhead(verify, _draft_factor(runs), loops, token_ns, sequence_ns)


def _draft_factor(runs: Sequence[OwnRun]) -> float:
    drafted = [(run.records.steps["draft_ns"], priced_steps(run.records, run.cost)[:, 2]) for run in runs]
    took, priced = (np.concatenate(each) for each in zip(*drafted, strict=True))
    return _fit(took[priced > 0], priced[priced > 0])[0] if np.any(priced) else 1.0


def _fit(took: Floats, *columns: Floats) -> list[float]:
    """Coefficients of the columns."""
    found, _ = nnls(np.stack(columns, 1) / took[:, None], np.ones(len(took)))
    coefficients: list[float] = found.tolist()
    return coefficients


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
