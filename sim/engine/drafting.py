"""The end of a step: ask the policy for depths, give the sequences their drafts, run the drafter."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sim.cost.step_cost import StepCost
from sim.engine.batch import (
    CLASS,
    DRAFT,
    END,
    FIRST,
    FRESH,
    GRANTED,
    PADS,
    POINTER,
    PROMPT,
    REQUEST,
    TOKENS,
    Int64,
)
from sim.engine.behaviour import Behaviour
from sim.engine.late import Late
from sim.engine.plan import Plan, Reads
from sim.engine.scheduler import Scheduler
from sim.errors import InputError
from sim.policies.base import Batch, Depths, Policy, Tree

Passes = tuple[tuple[int, int, int], ...]
"""(passes, sequences, KV tokens read) of the drafter's passes after the first."""


class Drafted(NamedTuple):
    """What the drafter did in one step (all zero when it did not run)."""

    ns: int = 0
    depth: int = 0
    passes: int = 0
    first_tokens: int = 0
    next_tokens: int = 0
    context: int = 0


class Drafting:
    """Policy and drafter of one replica, over the scheduler's running batch.

    ``survivors`` are the columns of the sequences that emitted and go on, ``None`` when all
    running sequences do.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        cost: StepCost,
        policy: Policy,
        behaviour: Behaviour,
        max_depth: int,
        tpot_limits_ns: tuple[int, ...] = (),
        drafter_limit: int | None = None,
    ) -> None:
        self.scheduler, self.batch, self.cost, self.policy = scheduler, scheduler.batch, cost, policy
        self.behaviour, self.tree = behaviour, scheduler.arena.tree
        self.max_depth = max_depth if self.tree is None else min(max_depth, self.tree.nodes)
        self.limit = min(scheduler.max_model_len, drafter_limit or scheduler.max_model_len)
        bounded = self.limit < scheduler.max_model_len
        self.may_overrun = behaviour.dummy_drafts and policy.drafts and (scheduler.reaches_limit or bounded)
        self.may_outgrow = bounded and not behaviour.dummy_drafts
        self.late = Late(behaviour.stale_decisions) if behaviour.stale_decisions else None
        self.tpot_limits_ns = np.array(tpot_limits_ns or (0,), dtype=np.int64)

    def overruns(self) -> bool:
        """Whether the step just scheduled comes so near the context limit that the drafter cannot run.

        One sequence is enough (vllm/v1/worker/gpu_model_runner.py, ``_input_fits_in_drafter``, 0.32).
        """
        if not self.may_overrun:
            return False
        beyond = max(self.max_depth, self.scheduler.lookahead)
        return self.scheduler.longest() + beyond > self.limit

    def carry_dummies(self, survivors: Int64 | None) -> None:
        """Give the survivors drafts of full depth that no target accepts, as vLLM does unasked."""
        self._carry(self.max_depth, survivors)
        for pointer in self._rows(POINTER, survivors).tolist():
            self.scheduler.reject_next(pointer)

    def choose(self, plan: Plan, survivors: Int64 | None, now: int) -> Depths:
        """Ask the policy, cap its answer, and give the survivors their drafts.

        Returns the depths to draft; what is carried into verification may be less.
        """
        if not self.policy.drafts:
            return 0
        view = self._view(plan, survivors, now)
        depths = self._checked(self.policy.draft_depths(view), view)
        if self.late is not None:
            depths = self.late.answer(view.request, depths)
        if self.may_outgrow:
            depths = self._within_drafter(depths, view.context_tokens)
        if not self.behaviour.draft_past_end:
            depths = self._before_end(depths, self._rows(END, survivors) - view.context_tokens - 1)
        found = self.scheduler.arena.found
        if found is not None:
            depths = np.where(found.take(self._rows(POINTER, survivors)), depths, 0)
        carried = depths
        if self.policy.wants_confidence:
            depths, carried = self._trimmed(view, depths, survivors)
        self._carry(carried, survivors)
        return depths

    def _within_drafter(self, depths: Depths, tokens: Int64) -> Depths:
        """Drafts that the drafter's own context has room for: cut by sequence, or none for anybody."""
        room = np.maximum(self.limit - tokens, 0)
        if self.behaviour.drafter_limit_stops_all:
            return 0 if np.any(room < depths) else depths
        return self._before_end(depths, room)

    def _before_end(self, depths: Depths, wanted: Int64) -> Depths:
        """Chains cut to what is still wanted; a tree is dropped where nothing is."""
        if self.tree is None:
            return np.minimum(depths, wanted)
        return np.where(wanted > 0, depths, 0)

    def _trimmed(self, view: Batch, depths: Depths, survivors: Int64 | None) -> tuple[Depths, Depths]:
        """What is proposed and what is verified of ``depths``, by the confidence of the drafts."""
        policy = self.policy
        claims = self.scheduler.arena.claims.take(self._rows(POINTER, survivors), axis=0)
        depths = _least(self._checked(policy.stop_depths(view, depths, claims), view), depths)
        claims *= np.arange(claims.shape[1]) < np.reshape(depths, (-1, 1))
        return depths, _least(self._checked(policy.verify_depths(view, depths, claims), view), depths)

    def _checked(self, depths: Depths, view: Batch) -> Depths:
        """A policy's answer cut to the engine's depth; ``InputError`` if it is no answer."""
        if isinstance(depths, int):
            if depths < 0:
                raise InputError(f"the policy asked for depth {depths}; depths are whole numbers from 0")
            return min(depths, self.max_depth)
        asked = np.asarray(depths)
        if asked.dtype.kind not in "iub" or asked.shape not in ((), view.request.shape) or np.any(asked < 0):
            raise InputError(
                f"the policy answered {depths!r}; it takes one whole number from 0, or "
                f"{view.sequences} of them, one per sequence"
            )
        if asked.ndim == 0:
            return min(int(asked), self.max_depth)
        return np.minimum(asked.astype(np.int64), self.max_depth)

    def _carry(self, depths: Depths, survivors: Int64 | None) -> None:
        """Set the drafts of the survivors; whoever else was in the step carries none."""
        a, n = self.batch.a, self.batch.n
        if self.behaviour.pad_depths:
            depths = self._padded(depths, survivors)
        if survivors is None:
            a[DRAFT, :n] = depths
            return
        a[DRAFT, :n][a[GRANTED, :n] > 0] = 0
        a[DRAFT, survivors] = depths

    def _padded(self, depths: Depths, survivors: Int64 | None) -> int:
        """The largest of the depths, what each sequence lacks of it noted as its pads.

        Sequences that had no turn in this step wait with the drafts they carry, and are padded as well.
        """
        a, n = self.batch.a, self.batch.n
        waiting = np.zeros(0, dtype=np.int64)
        if survivors is not None:
            waiting = np.flatnonzero((a[GRANTED, :n] == 0) & (a[FRESH, :n] == 0))
        most = max(int(np.max(depths, initial=0)), int(np.max(a[DRAFT, waiting], initial=0)))
        a[PADS, waiting] += most - a[DRAFT, waiting]
        a[DRAFT, waiting] = most
        a[PADS, slice(n) if survivors is None else survivors] = most - depths
        return most

    def _rows(self, row: int, survivors: Int64 | None) -> Int64:
        values = self.batch.a[row, : self.batch.n]
        return values if survivors is None else values[survivors]

    def _view(self, plan: Plan, survivors: Int64 | None, now: int) -> Batch:
        """What the engine knows at this moment, over the sequences that will carry drafts."""
        tokens, pointers = self._shown(TOKENS, survivors), self._rows(POINTER, survivors)
        future = self.policy.clairvoyant
        ends = self._rows(END, survivors) if future else self.scheduler.max_model_len
        view = Batch(
            now_ns=now,
            scheduled=plan.sequences,
            running=self.batch.n,
            waiting=len(self.scheduler.waiting),
            step_tokens=plan.tokens,
            max_depth=self.max_depth,
            request=self._shown(REQUEST, survivors),
            class_id=self._shown(CLASS, survivors),
            context_tokens=tokens,
            remaining_tokens=ends - tokens,
            cost=self.cost,
            run=self.scheduler.arena.runs.take(pointers).astype(np.int64) if future else None,
        )
        if self.policy.wants_progress:
            self._show_progress(view, survivors)
        return view

    def _show_progress(self, view: Batch, survivors: Int64 | None) -> None:
        """Add what each sequence has produced, since when, and how fast it should."""
        first = self._rows(FIRST, survivors)
        view.output_tokens = view.context_tokens - self._rows(PROMPT, survivors)
        view.since_first_ns = np.where(first < 0, 0, view.now_ns - first)
        view.tpot_limit_ns = self.tpot_limits_ns.take(view.class_id)
        view.prompt_tokens_ahead = self.scheduler.prompt_tokens_ahead()

    def _shown(self, row: int, survivors: Int64 | None) -> Int64:
        """One row for a policy's eyes: it cannot be written to."""
        values = self._rows(row, survivors)
        values.flags.writeable = False
        return values

    def draft(self, plan: Plan, survivors: Int64 | None, emitted: Int64, depths: Depths) -> Drafted:
        """Run the drafter for the chosen depths; what it did and how long it took."""
        if not self.policy.drafts:
            return Drafted()
        depth = depths if isinstance(depths, int) else int(np.max(depths, initial=0))
        if depth == 0 and not self.behaviour.draft_at_depth_zero:
            return Drafted()
        if plan.sequences == 0:
            return Drafted()
        rows, context, further = self._passes(plan, survivors, depths, depth)
        over, query_context = plan.tokens, (plan.drafter or plan).query_context
        if self.behaviour.draft_pass_over == "emitted":
            kept = int(emitted.sum()) - (len(emitted) - plan.decodes)
            over, query_context = kept + plan.prefill_tokens, context * kept // max(rows, 1)
        passes = next_tokens = read = 0
        for times, sequences, kv in further:
            passes, next_tokens, read = passes + times, next_tokens + times * sequences, read + times * kv
        return Drafted(
            ns=self.cost.draft_ns(over, rows, context, query_context, plan.prefill_pairs, further),
            depth=depth,
            passes=1 + passes,
            first_tokens=over,
            next_tokens=next_tokens,
            context=context + read,
        )

    def _passes(
        self, plan: Plan, survivors: Int64 | None, depths: Depths, depth: int
    ) -> tuple[int, int, Passes]:
        """Rows and decode KV tokens of the drafter's first pass, and the passes after it."""
        near: Plan | Reads = plan.drafter or plan
        if self.behaviour.draft_for_finished:
            rows, context = plan.sequences, near.context
        else:
            kept = self._read(survivors)
            rows, context = len(kept), int(kept.sum())
        if self.tree is not None:
            return rows, context, self._tree_passes(plan, survivors, depths, self.tree)
        if not self.cost.sequential or depth <= 1 or not rows:
            return rows, context, ()
        if isinstance(depths, int) or self.behaviour.draft_uniformly:
            read = near.kv_tokens if self.behaviour.draft_for_finished else context
            return rows, context, ((depth - 1, rows, read),)
        tokens = self._read(survivors)
        reach = [depths > level for level in range(1, depth)]
        return rows, context, tuple((1, int(r.sum()), int(tokens[r].sum())) for r in reach)

    def _read(self, survivors: Int64 | None) -> Int64:
        """KV tokens that a pass of the drafter reads of each sequence."""
        tokens, most = self._rows(TOKENS, survivors), self.cost.draft_window
        return np.minimum(tokens, most) if most else tokens

    def _tree_passes(self, plan: Plan, survivors: Int64 | None, depths: Depths, tree: Tree) -> Passes:
        """Passes after the first, each over ``width`` nodes of every sequence that gets a tree.

        A node is a row of its own that reads its sequence's KV again, as with SGLang's FlashInfer.
        """
        if not self.cost.sequential or tree.depth <= 1 or not np.any(depths):
            return ()
        tokens = self._read(survivors)
        rows, context = len(tokens), int(tokens.sum())
        if self.behaviour.draft_for_finished:
            rows, context = plan.sequences, (plan.drafter or plan).kv_tokens
        if not (isinstance(depths, int) or self.behaviour.draft_uniformly):
            rows, context = int(np.count_nonzero(depths)), int(tokens[depths > 0].sum())
        return ((tree.depth - 1, tree.width * rows, tree.width * context),)


def _least(asked: Depths, most: Depths) -> Depths:
    """The smaller of two answers for every sequence; one for all stays one for all."""
    if isinstance(asked, int) and isinstance(most, int):
        return min(asked, most)
    return np.minimum(asked, most)
