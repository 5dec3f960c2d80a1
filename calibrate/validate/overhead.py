"""What the engine's own loop costs, measured on requests of its own and added to a profile.

Calibration times passes alone. Scheduling, laying out a pass, asking the policy and keeping the books
are the engine's, and are the same share of every step whatever is predicted: a fixed part, one per
sequence, and one per pass of the drafter (which is added to that pass).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from calibrate.profile import Drafter, Profile, Term
from sim.results.run_records import RunRecords

SOURCE = "the reference engine's loop, least squares over the steps of a run of its own"


@dataclass(frozen=True)
class Overhead:
    """Nanoseconds of host work."""

    step_ns: float
    sequence_ns: float
    draft_pass_ns: float


def fit_overhead(runs: Sequence[RunRecords]) -> Overhead:
    """Non-negative least squares of host times on sequences and drafter passes."""
    steps = [run.steps for run in runs]
    host = np.concatenate([each["host_ns"] for each in steps]).astype(float)
    columns = [
        np.ones(len(host)),
        np.concatenate([each["sequences"] for each in steps]),
        np.concatenate([each["draft_passes"] for each in steps]),
    ]
    found, _ = nnls(np.stack(columns, 1).astype(float), host)
    return Overhead(*(float(each) for each in found))


def with_overhead(profile: Profile, overhead: Overhead) -> Profile:
    """The same profile with the loop's terms."""
    loop = _term("engine loop", overhead.step_ns, overhead.sequence_ns)
    launch = _term("laying out", overhead.draft_pass_ns)
    target = profile.target.model_copy(update={"host": (*profile.target.host, loop)})
    drafters = {name: _launched(each, launch) for name, each in profile.drafters.items()}
    return profile.model_copy(update={"target": target, "drafters": drafters, "seal": {}})


def _launched(drafter: Drafter, launch: Term) -> Drafter:
    exact = {name: (*terms, launch) for name, terms in drafter.exact.items()}
    further = (*drafter.next, launch) if drafter.next else ()
    return drafter.model_copy(update={"first": (*drafter.first, launch), "next": further, "exact": exact})


def _term(name: str, fixed_ns: float, sequence_ns: float = 0.0) -> Term:
    return Term(
        name=name, mark="measured", source=SOURCE, fixed_ns=fixed_ns, per_ns={"sequences": sequence_ns}
    )
