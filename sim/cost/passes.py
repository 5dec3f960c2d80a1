"""The terms of one pass, as dense tables over its counts and slopes over everything else.

A look-up takes well under 1 us and adds the same numbers as the array form, which serves tables,
policies and reports.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibrate.profile import Curve, Term

Float = NDArray[np.float64]
COUNTS = ("tokens", "sequences", "logits")
VARIABLES = (*COUNTS, "context_tokens", "query_context_tokens", "prefill_pairs", "wide_context_tokens")
WINDOWED = ("window_context_tokens", "window_query_context_tokens", "window_prefill_pairs")


def tabulate(curve: Curve, size: int) -> Float:
    """Nanoseconds at 0..size-1; zero work costs nothing, beyond the data the last slope goes on."""
    x, ns = np.asarray(curve.x, float), np.asarray(curve.ns, float)
    at = np.arange(size, dtype=float)
    if curve.between == "step":
        table = ns[np.minimum(np.searchsorted(x, at), len(x) - 1)]
    else:
        table = np.interp(at, x, ns)
    if len(x) > 1:
        slope = max(0.0, (ns[-1] - ns[-2]) / (x[-1] - x[-2]))
        table = table + slope * np.maximum(at - x[-1], 0)
    table[0] = 0.0
    return table


class PassCost:
    """One pass's terms: a table per counted variable and a linear part.

    ``size`` is one more than the largest count that will be asked for.
    """

    def __init__(self, terms: Sequence[Term], size: int) -> None:
        self.terms = tuple(terms)
        self.fixed = sum(term.fixed_ns for term in terms)
        per = {v: sum(term.per_ns.get(v, 0.0) for term in terms) for v in (*VARIABLES, *WINDOWED)}  # type: ignore[call-overload]
        self.tables: dict[str, Float] = {v: per[v] * np.arange(size, dtype=np.float64) for v in COUNTS}
        for term in terms:
            if term.curve is not None:
                self.tables[term.curve.over] = self.tables[term.curve.over] + tabulate(term.curve, size)
        self.context, self.query_context, self.pairs = (
            per["context_tokens"],
            per["query_context_tokens"],
            per["prefill_pairs"],
        )
        self.wide = per["wide_context_tokens"]
        """Nanoseconds per context token of a pass in which some sequence has more than one token."""
        self.windowed = tuple(per[v] for v in WINDOWED)
        """Nanoseconds per context token, query-context token and prefill pair of windowed layers."""
        self._tokens: list[float] = self.tables["tokens"].tolist()
        self._sequences: list[float] = self.tables["sequences"].tolist()
        self._logits: list[float] = self.tables["logits"].tolist()

    def ns(
        self,
        tokens: int,
        sequences: int,
        logits: int,
        context: float = 0.0,
        query_context: float = 0.0,
        pairs: float = 0.0,
    ) -> float:
        """Nanoseconds of one pass over a shape of plain numbers."""
        return (
            self.fixed
            + self._tokens[tokens]
            + self._sequences[sequences]
            + self._logits[logits]
            + self.context * context
            + self.query_context * query_context
            + self.pairs * pairs
        )

    def ns_array(
        self,
        tokens: ArrayLike,
        sequences: ArrayLike,
        logits: ArrayLike,
        context: ArrayLike = 0.0,
        query_context: ArrayLike = 0.0,
        pairs: ArrayLike = 0.0,
    ) -> Float:
        """The same for arrays (broadcast together)."""
        return np.asarray(
            self.fixed
            + self.tables["tokens"][np.asarray(tokens)]
            + self.tables["sequences"][np.asarray(sequences)]
            + self.tables["logits"][np.asarray(logits)]
            + self.context * np.asarray(context, float)
            + self.query_context * np.asarray(query_context, float)
            + self.pairs * np.asarray(pairs, float)
        )

    def wide_ns(self, tokens: ArrayLike, sequences: ArrayLike, context: ArrayLike) -> Float:
        """What a pass takes more where its ``tokens`` (not padded) are more than its sequences."""
        wide = np.asarray(tokens) > np.asarray(sequences)
        return np.where(wide, self.wide * np.asarray(context, float), 0.0)

    def window_ns(self, reads: Sequence[ArrayLike]) -> Float:
        """What windowed layers add to a pass that reads ``reads``, in the order of ``WINDOWED``."""
        parts = zip(self.windowed, reads, strict=True)
        return np.asarray(sum(ns * np.asarray(read, float) for ns, read in parts))


def term_ns(term: Term, shape: Mapping[str, NDArray[np.int64]]) -> Float:
    """Nanoseconds of one term over columns of shapes, for breakdowns."""
    total = np.full(len(next(iter(shape.values()))), term.fixed_ns)
    for variable, ns in term.per_ns.items():
        total = total + ns * shape[variable]
    if term.curve is not None:
        counts = shape[term.curve.over]
        total = total + tabulate(term.curve, int(counts.max(initial=0)) + 1)[counts]
    return total
