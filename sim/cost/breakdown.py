"""Where the time of a run went: nanoseconds of every term of every pass, from the step columns."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from calibrate.profile import Drafter, Profile, Term
from sim.cost.step_cost import term_ns

Columns = Mapping[str, NDArray[np.int64]]


def breakdown_ns(steps: Columns, profile: Profile, drafter: Drafter | None) -> dict[str, float]:
    """Total ns per ``pass.term`` over all steps; the parts add up to the steps' latencies.

    Terms of the target pass are evaluated at the padded token count, as the engine does; what a
    padded pass spends on padding is inside its terms. Rounding leaves at most one ns per part and
    step.
    """
    target = profile.target
    shape = {name: steps[name] for name in ("sequences", "logits", "prefill_pairs")}
    shape |= {
        "context_tokens": steps["context_tokens"],
        "query_context_tokens": steps["query_context_tokens"],
    }
    exact = {**shape, "tokens": steps["tokens"]}
    parts = _pass("verify", target.verify, {**shape, "tokens": steps["padded_tokens"]})
    parts |= _pass("accept", target.accept, exact) | _pass("host", target.host, exact)
    missed = {name: values[steps["graph"] == 0] for name, values in exact.items()}
    parts |= _pass("eager", target.eager_extra, missed)
    parts["draft"] = float(steps["draft_ns"].sum())
    known = float(steps["host_ns"].sum()) - sum(v for k, v in parts.items() if k.startswith("host."))
    if known > 0.5 * len(steps["host_ns"]):
        parts["host.engine"] = known
    return {name: ns for name, ns in parts.items() if ns > 0}


def _pass(name: str, terms: tuple[Term, ...], shape: Columns) -> dict[str, float]:
    if not len(shape["tokens"]):
        return {}
    parts: dict[str, float] = {}
    for term in terms:
        key = f"{name}.{term.name}"
        parts[key] = parts.get(key, 0.0) + float(term_ns(term, shape).sum())
    return parts
