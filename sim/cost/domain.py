"""Whether a step lies inside what a profile measured, so that extrapolation never goes unsaid."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from calibrate.profile import Profile, Term

Shape = Mapping[str, NDArray[np.int64] | NDArray[np.float64]]


def extrapolated_share(
    steps: Mapping[str, NDArray[np.int64]], profile: Profile, drafter: str | None
) -> float:
    """Share of steps that ask the profile about more than it knows.

    A measured profile says its domain (tokens, sequences, context per sequence) pass by pass;
    otherwise a step must stay within the last point of every curve, or within ``max_tokens``.
    """
    if not len(steps["tokens"]):
        return 0.0
    asked: Shape = {
        "tokens": steps["padded_tokens"],
        "sequences": steps["sequences"],
        "logits": steps["logits"],
        "context": steps["context_tokens"] / np.maximum(steps["decodes"], 1),
    }
    beyond = _beyond(profile, "verify", profile.target.verify, asked)
    if drafter is not None:
        own = profile.drafters[drafter]
        first = steps["draft_first_tokens"]
        tokens = first + steps["sequences"] * own.block_tokens * (first > 0)
        beyond |= _beyond(profile, f"{drafter}.first", own.first, {"tokens": tokens})
    return float(beyond.mean())


def _beyond(profile: Profile, name: str, terms: tuple[Term, ...], asked: Shape) -> NDArray[np.bool_]:
    report = profile.fit.get(name)
    if report is not None and report.domain:
        ends = [(v, report.domain[v].highest) for v in asked if v in report.domain]
    else:
        curves = [term.curve for term in terms if term.curve is not None]
        ends = [(curve.over, curve.x[-1]) for curve in curves if curve.over in asked]
        if not curves:
            ends = [("tokens", profile.max_tokens)]
    beyond = np.zeros(len(asked["tokens"]), dtype=np.bool_)
    for variable, end in ends:
        beyond |= asked[variable] > end
    return beyond
