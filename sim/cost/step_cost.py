"""Profile -> StepCost: what one engine step takes, looked up in the loop and priced for policies.

A pass is a sum of terms (``sim.cost.passes``). What the engine does around it is stated by its habits, so
that policies price what it will charge.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibrate.profile import Drafter, Profile
from sim.cost.graphs import EAGER, FULL, PIECEWISE, GraphHabits, Graphs
from sim.cost.passes import PassCost

Float = NDArray[np.float64]


@dataclass(frozen=True)
class DraftHabits:
    """How the engine runs a drafter, as far as it decides what a round costs.

    ``over_scheduled``: the first pass covers every token of the step, rejected ones too.
    ``idle_pass``: it is run at depth 0 as well. ``uniform``: further passes run for every
    sequence while any of them goes on. ``kv_tokens``: the most KV that it reads of a sequence, 0
    for all.
    """

    over_scheduled: bool = False
    idle_pass: bool = False
    uniform: bool = True
    kv_tokens: int = 0


@dataclass(frozen=True)
class StepHabits:
    """What the engine does in every step, as far as a policy has to price it.

    ``overlap_host``: host time hides behind the device. ``idle_rank_share`` of all steps run eagerly.
    With a drafter loaded, a step at depth 0 costs ``depth_zero_ns`` and ``depth_zero_sequence_ns`` for
    each sequence.
    """

    overlap_host: bool = False
    idle_rank_share: float = 0.0
    depth_zero_ns: int = 0
    depth_zero_sequence_ns: int = 0


class StepCost:
    """Cost of every part of an engine step for one target, with or without one drafter.

    ``max_tokens`` is the largest step that the engine builds or a policy asks about;
    ``capture_sizes`` (tokens, rising) are the captured graph sizes to pad the target pass to,
    empty for none; ``graphs`` says more about them. ``habits`` and ``step`` are the engine's.
    """

    def __init__(
        self,
        profile: Profile,
        drafter: Drafter | None,
        max_tokens: int,
        capture_sizes: Sequence[int] = (),
        habits: DraftHabits = DraftHabits(),
        graphs: GraphHabits | None = None,
        step: StepHabits = StepHabits(),
    ) -> None:
        captured = graphs or GraphHabits(sizes=tuple(capture_sizes))
        widest = max(captured.depths, default=0) + 1 if captured.multiples else 0
        size = max_tokens + max([widest, *captured.sizes]) + 2
        if drafter is not None:
            size += max_tokens * drafter.block_tokens
        self.profile, self.drafter, self.habits, self.step = profile, drafter, habits, step
        self.max_tokens = max_tokens
        self.verify = PassCost(profile.target.verify, size)
        self.accept = PassCost(profile.target.accept, size)
        self.host = PassCost(profile.target.host, size)
        self.eager = PassCost(profile.target.eager_extra, size)
        self.piecewise = PassCost(profile.target.piecewise_extra, size)
        self.first = PassCost(drafter.first if drafter else (), size)
        self.next = PassCost(drafter.next if drafter else (), size)
        self.block_tokens = drafter.block_tokens if drafter else 0
        self.sequential = drafter is not None and bool(drafter.next)
        self.graphs = Graphs(captured, size)
        self.largest_graph, self.padded_array = self.graphs.largest, self.graphs.padded_array
        self.window_tokens = profile.target.work.window_tokens if any(self.verify.windowed) else 0
        self.draft_window = habits.kv_tokens if drafter is not None else 0

    def launch(self, tokens: int, depth: int) -> tuple[int, int]:
        """How a step's target pass is launched, and its padded tokens (``sim.cost.graphs``).

        ``depth`` is that of a uniform decode batch, or ``MIXED``.
        """
        graphs = self.graphs
        if graphs.plain:
            return (EAGER if tokens > graphs.largest > 0 else FULL), graphs.padded[tokens]
        return graphs.of(tokens, depth)

    def verify_ns(
        self,
        tokens: int,
        sequences: int,
        logits: int,
        context: int,
        query_context: int,
        pairs: int,
        launch: tuple[int, int] | None = None,
        window: tuple[int, int, int] | None = None,
    ) -> int:
        """One target pass, rounded to whole nanoseconds.

        ``launch`` is by default that of a uniform decode batch; ``window`` what windowed layers read.
        """
        graph, padded = launch or self.launch(tokens, tokens // max(sequences, 1) - 1)
        ns = self.verify.ns(padded, sequences, logits, context, query_context, pairs)
        if graph != FULL:
            extra = self.eager if graph == EAGER else self.piecewise
            ns += extra.ns(tokens, sequences, logits, context, query_context, pairs)
        if self.verify.wide and tokens > sequences:
            ns += self.verify.wide * context
        if window is not None:
            ns += float(self.verify.window_ns(window))
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
        if self.first.wide and first_tokens > sequences:
            ns += self.first.wide * context
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
        """Target pass, sampling and host time of a decode-only step of ``tokens`` tokens.

        Tokens count as spread evenly over the sequences, and so does the context.
        """
        t, n = np.asarray(tokens), np.asarray(sequences)
        device = self._launched_ns(t, n, context)
        if self.step.idle_rank_share:
            share = self.step.idle_rank_share
            device = (1 - share) * device + share * self._eager_ns(t, n, context)
        if not (self.step.overlap_host or self.step.depth_zero_ns or self.step.depth_zero_sequence_ns):
            return device + self.accept.ns_array(t, n, t) + self.host.ns_array(t, n, t)
        device = device + self.accept.ns_array(t, n, t)
        host = self.host.ns_array(t, n, t)
        if self.drafter is not None:
            idle = self.step.depth_zero_ns + self.step.depth_zero_sequence_ns * n
            host = host + np.where(t == n, idle, 0)
        return np.maximum(device, host) if self.step.overlap_host else device + host

    def _launched_ns(self, t: NDArray[np.int64], n: NDArray[np.int64], context: float) -> Float:
        """Target pass as the engine launches it."""
        if self.graphs.plain:
            padded, eager = self.padded_array[t], (t > self.largest_graph) & (self.largest_graph > 0)
        else:
            graph, padded = self.graphs.of_decodes(t, n)
            eager = graph == EAGER
        read = context * t / np.maximum(n, 1)
        ns = self.verify.ns_array(padded, n, t, context, read) + self.verify.wide_ns(t, n, context)
        ns = ns + np.where(eager, self.eager.ns_array(t, n, t, context, read), 0.0)
        if not self.graphs.plain:
            ns = ns + np.where(graph == PIECEWISE, self.piecewise.ns_array(t, n, t, context, read), 0.0)
        return ns + self._window_ns(t, n, context) if self.window_tokens else ns

    def _eager_ns(self, t: NDArray[np.int64], n: NDArray[np.int64], context: float) -> Float:
        """Target pass that misses its graph."""
        shape = (t, n, t, context, context * t / np.maximum(n, 1))
        ns = self.verify.ns_array(*shape) + self.eager.ns_array(*shape) + self.verify.wide_ns(t, n, context)
        return ns + self._window_ns(t, n, context) if self.window_tokens else ns

    def _window_ns(self, t: NDArray[np.int64], n: NDArray[np.int64], context: float) -> Float:
        """Part of windowed layers."""
        near = np.minimum(context, n * self.window_tokens)
        return self.verify.window_ns((near, near * t / np.maximum(n, 1), 0.0))

    @property
    def bends(self) -> bool:
        """Whether times are not straight lines over context."""
        return bool(self.window_tokens or self.draft_window or self.step.overlap_host)

    def knee(self, sequences: int) -> int:
        """Context tokens of a batch beyond which its costs are straight lines; 0: they are everywhere."""
        return sequences * max(self.window_tokens, self.draft_window)

    def _near(self, context: float, sequences: int) -> float:
        """Context that the drafter reads."""
        return min(context, sequences * self.draft_window) if self.draft_window else context

    def first_ns(self, drafts: ArrayLike, emitted: ArrayLike, sequences: int, context: float) -> Float:
        """Drafter's first pass after a step of ``drafts`` draft tokens that emitted ``emitted``.

        Which of the two counts is the engine's habit; a round's own first pass is the one after
        its verification.
        """
        n = sequences
        tokens = n + np.asarray(drafts) if self.habits.over_scheduled else np.asarray(emitted)
        near = self._near(context, n)
        read = near * tokens / max(n, 1)
        wide = self.first.wide_ns(tokens, n, near)
        return self.first.ns_array(tokens + n * self.block_tokens, n, n, near, read) + wide

    def further_ns(self, sequences: int, depth: ArrayLike, context: float) -> Float:
        """Drafter's passes beyond the first, when all sequences go to ``depth``."""
        n = sequences
        near = self._near(context, n)
        one = float(self.next.ns(n, n, n, near, near)) if self.sequential else 0.0
        return np.asarray(np.maximum(np.asarray(depth) - 1, 0) * one, dtype=np.float64)
