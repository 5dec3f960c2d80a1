"""Where the time of a run went: nanoseconds of every term of every pass, from the step columns."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from calibrate.profile import Drafter, Profile, Term
from sim.cost.graphs import EAGER, PIECEWISE
from sim.cost.passes import WINDOWED, term_ns

Columns = Mapping[str, NDArray[np.int64]]
Float = NDArray[np.float64]


def breakdown_ns(steps: Columns, profile: Profile, drafter: Drafter | None) -> dict[str, float]:
    """Total ns per ``pass.term`` over all steps; the parts add up to the steps' latencies.

    Terms of the target pass are evaluated at the padded token count, as the engine does; what a
    padded pass spends on padding is inside its terms. Host time that hides behind the device is in no
    part: those of the host are scaled to what shows. Rounding leaves at most one ns per part and step.
    """
    target = profile.target
    shape = {name: steps[name] for name in ("sequences", "logits", "prefill_pairs")}
    shape |= {
        "context_tokens": steps["context_tokens"],
        "query_context_tokens": steps["query_context_tokens"],
        "wide_context_tokens": np.where(steps["tokens"] > steps["sequences"], steps["context_tokens"], 0),
    }
    exact = {**shape, "tokens": steps["tokens"]}
    windows = {name: steps[name] for name in WINDOWED if name in steps}
    parts = _pass("verify", target.verify, {**shape, **windows, "tokens": steps["padded_tokens"]})
    parts |= _pass("accept", target.accept, exact) | _host(steps, target.host, exact)
    for name, graph, terms in (
        ("eager", EAGER, target.eager_extra),
        ("piecewise", PIECEWISE, target.piecewise_extra),
    ):
        parts |= _pass(name, terms, {v: values[steps["graph"] == graph] for v, values in exact.items()})
    parts["draft"] = float(steps["draft_ns"].sum())
    return {name: ns for name, ns in parts.items() if ns > 0}


def _host(steps: Columns, terms: tuple[Term, ...], shape: Columns) -> dict[str, float]:
    """Host time that shows, by its terms and by what the engine adds to them."""
    nothing = np.zeros(len(steps["host_ns"]), dtype=np.int64)
    shown, hidden = steps["host_ns"], steps.get("hidden_ns", nothing)
    whole = np.maximum(shown + hidden, 1)
    weight = shown / whole if hidden.any() else np.ones(len(shown))
    each = _terms("host", terms, shape)
    for name in ("grammar", "depth_zero"):
        if f"{name}_ns" in steps:
            each[f"host.{name}"] = steps[f"{name}_ns"].astype(np.float64)
    parts = {name: float((ns * weight).sum()) for name, ns in each.items()}
    rest = float(shown.sum()) - sum(parts.values())
    if rest > 0.5 * len(shown):
        parts["host.engine"] = rest
    return parts


def _pass(name: str, terms: tuple[Term, ...], shape: Columns) -> dict[str, float]:
    """Total ns of every term of one pass."""
    return {key: float(ns.sum()) for key, ns in _terms(name, terms, shape).items()}


def _terms(name: str, terms: tuple[Term, ...], shape: Columns) -> dict[str, Float]:
    """Nanoseconds of every term in every step; terms of one name are one part."""
    parts: dict[str, Float] = {}
    for term in terms if len(shape["tokens"]) else ():
        key = f"{name}.{term.name}"
        parts[key] = parts.get(key, 0.0) + term_ns(term, shape)
    return parts
