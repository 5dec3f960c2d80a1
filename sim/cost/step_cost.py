"""Profile -> StepCost: what one engine step takes, as dense tables looked up in the loop.

A pass is a sum of terms (calibrate/profile.py). Curves over counts (tokens, sequences, logits)
become dense tables, one entry per count; everything else is linear. A look-up costs well under
1 us and adds the same numbers as the array form used for tables, policies and reports.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibrate.profile import Curve, Drafter, Profile, Term

Float = NDArray[np.float64]
COUNTS = ("tokens", "sequences", "logits")
VARIABLES = (*COUNTS, "context_tokens", "query_context_tokens", "prefill_pairs")


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
        per = {v: sum(term.per_ns.get(v, 0.0) for term in terms) for v in VARIABLES}  # type: ignore[call-overload]
        self.tables: dict[str, Float] = {v: per[v] * np.arange(size, dtype=np.float64) for v in COUNTS}
        for term in terms:
            if term.curve is not None:
                self.tables[term.curve.over] = self.tables[term.curve.over] + tabulate(term.curve, size)
        self.context, self.query_context, self.pairs = (
            per["context_tokens"],
            per["query_context_tokens"],
            per["prefill_pairs"],
        )
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


def term_ns(term: Term, shape: Mapping[str, NDArray[np.int64]]) -> Float:
    """Nanoseconds of one term over columns of shapes, for breakdowns."""
    total = np.full(len(next(iter(shape.values()))), term.fixed_ns)
    for variable, ns in term.per_ns.items():
        total = total + ns * shape[variable]
    if term.curve is not None:
        counts = shape[term.curve.over]
        total = total + tabulate(term.curve, int(counts.max(initial=0)) + 1)[counts]
    return total


@dataclass(frozen=True)
class DraftHabits:
    """How the engine runs a drafter, as far as it decides what a round costs.

    ``over_scheduled``: the first pass covers every token of the step, rejected ones too.
    ``idle_pass``: it is run at depth 0 as well. ``uniform``: further passes run for every
    sequence while any of them goes on.
    """

    over_scheduled: bool = False
    idle_pass: bool = False
    uniform: bool = True


class StepCost:
    """Cost of every part of an engine step for one target, with or without one drafter.

    ``max_tokens`` is the largest step that the engine builds or a policy asks about;
    ``capture_sizes`` (tokens, rising) are the captured graph sizes to pad the target pass to,
    empty for none. ``habits`` are the engine's, so that policies price what it will charge.
    """

    def __init__(
        self,
        profile: Profile,
        drafter: Drafter | None,
        max_tokens: int,
        capture_sizes: Sequence[int] = (),
        habits: DraftHabits = DraftHabits(),
    ) -> None:
        size = max_tokens + max([0, *capture_sizes]) + 2
        if drafter is not None:
            size += max_tokens * drafter.block_tokens
        self.profile, self.drafter, self.habits = profile, drafter, habits
        self.max_tokens = max_tokens
        self.verify = PassCost(profile.target.verify, size)
        self.accept = PassCost(profile.target.accept, size)
        self.host = PassCost(profile.target.host, size)
        self.eager = PassCost(profile.target.eager_extra, size)
        self.first = PassCost(drafter.first if drafter else (), size)
        self.next = PassCost(drafter.next if drafter else (), size)
        self.block_tokens = drafter.block_tokens if drafter else 0
        self.sequential = drafter is not None and bool(drafter.next)
        self.largest_graph = max(capture_sizes, default=0)
        self.padded_array = _padding(capture_sizes, size)
        self._padded = self.padded_array.tolist()

    def padded(self, tokens: int) -> int:
        """Step tokens after padding to the captured size."""
        return self._padded[tokens]  # type: ignore[no-any-return]

    def misses_graph(self, tokens: int) -> bool:
        """Whether a step is larger than every captured graph."""
        return tokens > self.largest_graph > 0

    def verify_ns(
        self, tokens: int, sequences: int, logits: int, context: int, query_context: int, pairs: int
    ) -> int:
        """One target pass, rounded to whole nanoseconds."""
        ns = self.verify.ns(self._padded[tokens], sequences, logits, context, query_context, pairs)
        if tokens > self.largest_graph > 0:
            ns += self.eager.ns(tokens, sequences, logits, context, query_context, pairs)
        return round(ns)

    def draft_ns(
        self,
        first_tokens: int,
        sequences: int,
        context: int,
        query_context: int,
        pairs: int,
        further: Sequence[tuple[int, int, int]],
    ) -> int:
        """All passes of the drafter in one step.

        The first pass covers ``first_tokens`` (its block's tokens come on top); ``further`` lists
        (passes, sequences, KV tokens read) of the passes after it.
        """
        tokens = first_tokens + sequences * self.block_tokens
        ns = self.first.ns(tokens, sequences, sequences, context, query_context, pairs)
        if self.sequential:
            for passes, rows, read in further:
                ns += passes * self.next.ns(rows, rows, rows, read, read)
        return round(ns)

    def round_ns(self, sequences: int, depth: ArrayLike, context: float) -> Float:
        """Time of one decode-only round at uniform depths: its drafter passes and its target pass."""
        k = np.asarray(depth)
        n = sequences
        return self.target_ns(n * (k + 1), n, context) + self.drafting_ns(n, n * k, k, context)

    def drafting_ns(self, sequences: int, drafts: ArrayLike, depth: ArrayLike, context: float) -> Float:
        """Drafter's part of a round with ``drafts`` drafts in all, the deepest sequence at ``depth``.

        Where the first pass covers only tokens that were kept, one per sequence is taken.
        """
        n = sequences
        ns = self.first_ns(drafts, n, n, context) + self.further_ns(n, depth, context)
        return np.where((np.asarray(drafts) > 0) | self.habits.idle_pass, ns, 0.0)

    def target_ns(self, tokens: ArrayLike, sequences: ArrayLike, context: float) -> Float:
        """Target pass, sampling and host time of a decode-only step of ``tokens`` tokens."""
        t, n = np.asarray(tokens), np.asarray(sequences)
        read = context * t / np.maximum(n, 1)
        ns = self.verify.ns_array(self.padded_array[t], n, t, context, read)
        eager = self.eager.ns_array(t, n, t, context, read)
        ns = ns + np.where((t > self.largest_graph) & (self.largest_graph > 0), eager, 0.0)
        return ns + self.accept.ns_array(t, n, t) + self.host.ns_array(t, n, t)

    def first_ns(self, drafts: ArrayLike, emitted: ArrayLike, sequences: int, context: float) -> Float:
        """Drafter's first pass after a step of ``drafts`` draft tokens that emitted ``emitted``.

        Which of the two counts is the engine's habit; a round's own first pass is the one after
        its verification.
        """
        n = sequences
        tokens = n + np.asarray(drafts) if self.habits.over_scheduled else np.asarray(emitted)
        read = context * tokens / max(n, 1)
        return self.first.ns_array(tokens + n * self.block_tokens, n, n, context, read)

    def further_ns(self, sequences: int, depth: ArrayLike, context: float) -> Float:
        """Drafter's passes beyond the first, when all sequences go to ``depth``."""
        n = sequences
        one = float(self.next.ns(n, n, n, context, context)) if self.sequential else 0.0
        return np.asarray(np.maximum(np.asarray(depth) - 1, 0) * one, dtype=np.float64)


def _padding(capture_sizes: Sequence[int], size: int) -> NDArray[np.int64]:
    """Padded size of every token count; counts beyond the largest capture keep their own."""
    at = np.arange(size)
    sizes = np.asarray(sorted(capture_sizes), dtype=np.int64)
    if not len(sizes):
        return at
    slot = np.searchsorted(sizes, at)
    padded = sizes[np.minimum(slot, len(sizes) - 1)]
    return np.where((at > sizes[-1]) | (at == 0), at, padded)
