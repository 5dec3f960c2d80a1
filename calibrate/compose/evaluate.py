"""The time of a pass from its terms: the formula of ``calibrate.profile``, written for checks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from calibrate.profile import Curve, Term


def pass_ns(terms: Iterable[Term], shape: Mapping[str, float]) -> float:
    """Nanoseconds of one pass; a variable that ``shape`` does not name is 0."""
    return sum(term_ns(term, shape) for term in terms)


def term_ns(term: Term, shape: Mapping[str, float]) -> float:
    """Nanoseconds of one addend of a pass."""
    linear = sum(slope * shape.get(name, 0.0) for name, slope in term.per_ns.items())
    curve = 0.0 if term.curve is None else _curve_ns(term.curve, shape.get(term.curve.over, 0.0))
    return curve + term.fixed_ns + linear


def decode_shape(batch: float, context: float, width: int = 1, window: int = 0) -> dict[str, float]:
    """A step of ``batch`` sequences that verify ``width`` tokens each at ``context``.

    ``window`` is how far windowed layers see, 0 where there are none.
    """
    near = min(context, window)
    return {
        "tokens": batch * width,
        "sequences": batch,
        "logits": batch * width,
        "context_tokens": batch * context,
        "query_context_tokens": batch * width * context,
        "wide_context_tokens": batch * context if width > 1 else 0.0,
        "window_context_tokens": batch * near,
        "window_query_context_tokens": batch * width * near,
    }


def _curve_ns(curve: Curve, at: float) -> float:
    x, ns = curve.x, curve.ns
    if curve.between == "step":
        between = ns[min(int(np.searchsorted(x, at)), len(ns) - 1)]
    else:
        between = float(np.interp(at, x, ns))
    if at <= x[-1] or len(x) == 1:
        return between
    slope = max(0.0, (ns[-1] - ns[-2]) / (x[-1] - x[-2]))
    return ns[-1] + slope * (at - x[-1])
