"""The end of a step: ask the policy for depths, run the drafter as far as it wants, keep the drafts.

Drafting is sequential, so the policy is asked after every pass whether it goes on, with the confidences
of the drafts made so far and zeros behind them. By its contract a policy decides about draft j from
confidences before j alone, so this is the answer that it gives to all of them at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from calibrate.passes.accept import draw
from calibrate.reference.clock import Stopwatch
from calibrate.reference.layout import Rows
from calibrate.reference.models import Drafter
from calibrate.reference.plan import Plan
from calibrate.reference.policy import Steering
from calibrate.reference.scheduler import Scheduler
from calibrate.reference.sequence import Row, Sequence
from calibrate.reference.serving import Serving
from calibrate.reference.verdict import Judge

Int64 = NDArray[np.int64]


@dataclass
class Drafted:
    """What the drafter did in one step."""

    depth: int = 0
    passes: int = 0
    first_tokens: int = 0
    next_tokens: int = 0
    context: int = 0

    def columns(self) -> dict[str, int]:
        """The columns of a step that drafting decides."""
        return {
            "next_depth": self.depth,
            "draft_passes": self.passes,
            "draft_first_tokens": self.first_tokens,
            "draft_next_tokens": self.next_tokens,
            "draft_context_tokens": self.context,
        }


class Drafting:
    """Policy and drafter of one engine."""

    def __init__(
        self,
        steering: Steering,
        drafter: Drafter | None,
        serving: Serving,
        scheduler: Scheduler,
        judge: Judge,
        watch: Stopwatch,
    ) -> None:
        self.steering, self.policy, self.drafter = steering, steering.policy, drafter
        self.serving, self.scheduler, self.judge, self.watch = serving, scheduler, judge, watch

    def run(self, plan: Plan, now_ns: int) -> Drafted:
        """Choose depths for the survivors of a step, draft for them, and give them their drafts."""
        for row in plan.rows:
            row.sequence.drafts, row.sequence.chances = [], None
        if self.drafter is None:
            return Drafted()
        survivors = plan.survivors
        view = self._view(plan, survivors, now_ns)
        depths = self._checked(self.policy.draft_depths(view), survivors)
        if not self.serving.draft_past_end:
            depths = np.minimum(depths, _array(each.end - len(each.text) - 1 for each in survivors))
        round_ = Round(self, self.drafter, plan, survivors, view)
        return round_.run(depths)

    def _checked(self, depths: Any, survivors: list[Sequence]) -> Any:
        """A policy's answer cut to the engine's depth; ``ValueError`` if it is none."""
        asked = np.asarray(depths)
        if asked.dtype.kind not in "iub" or asked.shape not in ((), (len(survivors),)) or np.any(asked < 0):
            raise ValueError(
                f"the policy answered {depths!r}: no depth, nor one for each of {len(survivors)}"
            )
        if asked.ndim == 0:
            return min(int(asked), self.serving.max_depth)
        return np.minimum(asked.astype(np.int64), self.serving.max_depth)

    def stopped(self, round_: Round, depths: Any) -> Any:
        """How deep the policy still wants to draft."""
        if not self.policy.wants_confidence:
            return depths
        answer = self.policy.stop_depths(round_.view, depths, round_.claims.copy())
        return _least(self._checked(answer, round_.survivors), depths)

    def verified(self, round_: Round, depths: Any) -> Any:
        """How many of the drafts are carried into the next step."""
        if not self.policy.wants_confidence:
            return depths
        claims = round_.claims * (np.arange(round_.claims.shape[1]) < np.reshape(depths, (-1, 1)))
        answer = self.policy.verify_depths(round_.view, depths, claims.astype(np.float32))
        return _least(self._checked(answer, round_.survivors), depths)

    def _view(self, plan: Plan, survivors: list[Sequence], now_ns: int) -> Any:
        """What the engine knows at this moment, over the sequences that will carry drafts."""
        future = self.policy.clairvoyant
        limit = self.serving.max_model_len
        view = self.steering.batch(
            now_ns=now_ns,
            scheduled=len(plan.rows),
            running=len(self.scheduler.running),
            waiting=len(self.scheduler.waiting),
            step_tokens=plan.tokens,
            max_depth=self.serving.max_depth,
            request=_array(each.request.number for each in survivors),
            class_id=_array(each.request.class_id for each in survivors),
            context_tokens=_array(len(each.text) for each in survivors),
            remaining_tokens=_array((each.end if future else limit) - len(each.text) for each in survivors),
            run=self._future(survivors) if future else None,
        )
        if self.policy.wants_progress:
            self._show_progress(view, survivors, now_ns)
        return view

    def _future(self, survivors: list[Sequence]) -> Int64:
        """Drafts that would be accepted: only forced luck is known beforehand."""
        if self.judge.forced is None:
            raise ValueError("a clairvoyant policy needs acceptance that is fixed beforehand")
        runs = self.judge.forced.runs
        return _array(runs[each.request.number][each.produced] for each in survivors)

    def _show_progress(self, view: Any, survivors: list[Sequence], now_ns: int) -> None:
        since = (0 if s.first_token_ns < 0 else now_ns - s.first_token_ns for s in survivors)
        view.output_tokens = _array(each.produced for each in survivors)
        view.since_first_ns = _array(since)
        view.tpot_limit_ns = _array(self.serving.tpot_limits_ns[s.request.class_id] for s in survivors)
        view.prompt_tokens_ahead = self.scheduler.prompt_tokens_ahead()


class Round:
    """One step's drafting: the drafter's passes over ``rows``, drafts and claims of the survivors.

    ``claims`` has shape (survivors, max_depth), 0 for drafts not made yet; ``tokens`` shape (rows, depth).
    """

    def __init__(
        self, drafting: Drafting, drafter: Drafter, plan: Plan, survivors: list[Sequence], view: Any
    ) -> None:
        self.drafting, self.drafter, self.plan, self.survivors, self.view = (
            drafting,
            drafter,
            plan,
            survivors,
            view,
        )
        self.serving, self.judge = drafting.serving, drafting.judge
        self.rows = plan.in_slots
        self.goes_on = [self._row_index()[id(each)] for each in survivors]
        self.claims = np.zeros((len(survivors), max(self.serving.max_depth, 1)), dtype=np.float32)
        self.drafted: list[list[int]] = []
        self.chances: list[Tensor] = []
        self.done = Drafted()

    def _row_index(self) -> dict[int, int]:
        return {id(row.sequence): i for i, row in enumerate(self.rows)}

    def run(self, depths: Any) -> Drafted:
        """All passes, and the drafts handed to the survivors."""
        if not self.rows or not (np.any(depths) or self.serving.draft_at_depth_zero):
            stopped = self.drafting.stopped(self, depths)
            self._carry(self.drafting.verified(self, stopped))
            return self.done
        tokens = self._first()
        stopped, level = self.drafting.stopped(self, depths), 1
        going = list(range(len(self.rows)))
        while level < int(np.max(stopped, initial=0)):
            kept = self._kept(going, stopped, level)
            if not kept:
                break
            tokens = self._next(kept, going, tokens, level)
            going, level = kept, level + 1
            stopped = self.drafting.stopped(self, depths)
        self.done.depth = int(np.max(stopped, initial=0))
        self._carry(self.drafting.verified(self, stopped))
        return self.done

    def _kept(self, going: list[int], stopped: Any, level: int) -> list[int]:
        """The rows of the next pass."""
        if self.serving.draft_uniformly or isinstance(stopped, int):
            return going if self.serving.draft_for_finished else sorted(self.goes_on)
        return sorted(row for row, depth in zip(self.goes_on, stopped.tolist(), strict=True) if depth > level)

    # -- passes ------------------------------------------------------------------------------

    def _first(self) -> Tensor:
        """The pass over the fresh tokens of the step; returns the first drafts."""
        ends = [self._first_end(row) for row in self.rows]
        starts = [row.sequence.drafter_computed for row in self.rows]
        widths = [end - start for start, end in zip(starts, ends, strict=True)]
        together = sum(row.decodes for row in self.rows)
        rows = Rows([row.sequence.slot for row in self.rows], starts, widths, together)
        ids = [
            token for row, a, b in zip(self.rows, starts, ends, strict=True) for token in _ahead(row, a, b)
        ]
        last = [
            offset + self._last(row, end)
            for row, offset, end in zip(self.rows, rows.offsets, ends, strict=True)
        ]
        for row, end in zip(self.rows, ends, strict=True):
            row.sequence.drafter_computed = row.sequence.computed if row.emits else end
        self.done.passes, self.done.first_tokens = 1, rows.tokens
        self.done.context = sum(ends[i] for i in range(together))
        return self._propose(self._pass(rows, last, torch.tensor(ids, device=self.drafter.device)), None, 0)

    def _first_end(self, row: Row) -> int:
        """Where the first pass ends: behind all of the step's tokens, or behind those that were kept."""
        if row.emits and not self.serving.draft_over_scheduled:
            return row.start + row.granted - row.verified - 1 + row.emitted
        return row.end

    def _last(self, row: Row, end: int) -> int:
        """Offset of the token that is drafted behind: the last known one."""
        at = row.sequence.computed - 1 if row.emits else end - 1
        return at - row.sequence.drafter_computed

    def _next(self, kept: list[int], going: list[int], tokens: Tensor, level: int) -> Tensor:
        """A further pass over the drafts just made, of the rows ``kept`` of those still ``going``."""
        sequences = [self.rows[row].sequence for row in kept]
        starts = [each.drafter_computed + level - 1 for each in sequences]
        rows = Rows([each.slot for each in sequences], starts, [1] * len(kept), len(kept))
        index = None
        if len(kept) < len(going):
            index = torch.tensor([going.index(row) for row in kept], device=tokens.device)
            tokens = tokens[index]
        self.done.passes += 1
        self.done.next_tokens += len(kept)
        self.done.context += sum(start + 1 for start in starts)
        logits = self._pass(rows, list(range(len(kept))), tokens, index, further=True)
        return self._propose(logits, kept, level)

    def _pass(
        self, rows: Rows, wanted: list[int], ids: Tensor, kept: Tensor | None = None, further: bool = False
    ) -> Tensor:
        laid = self.drafter.lay_out(rows, wanted)
        self.drafting.watch.lap("host")
        return self.drafter.next(laid, ids, kept) if further else self.drafter.run(laid, ids)

    def _propose(self, logits: Tensor, rows: list[int] | None, level: int) -> Tensor:
        """Choose the draft of every row, and note what it was drawn from and what it claims."""
        chosen = self._draw(logits, rows)
        tokens = self.drafter.in_target(chosen)
        whole = [0] * len(self.rows)
        for row, token in zip(rows or range(len(self.rows)), tokens.tolist(), strict=True):
            whole[row] = token
        self.drafted.append(whole)
        if self.drafting.policy.wants_confidence and level < self.claims.shape[1]:
            self._claim(logits, rows, level)
        self.drafting.watch.lap("draft")
        return tokens

    def _draw(self, logits: Tensor, rows: list[int] | None) -> Tensor:
        if not self.judge.temperature:
            return logits.argmax(-1)
        chances = (logits.float() / self.judge.temperature).softmax(-1)
        whole = chances
        if rows is not None and len(rows) < len(self.rows):
            whole = chances.new_zeros(len(self.rows), chances.shape[-1])
            whole[rows] = chances
        self.chances.append(whole)
        return draw(chances, self.judge.generator)

    def _claim(self, logits: Tensor, rows: list[int] | None, level: int) -> None:
        """The drafter's largest probability; with forced luck, what is stated."""
        if self.judge.forced is not None:
            claims = self.judge.forced.claims
            self.claims[:, level] = [claims[s.request.number][s.produced, level] for s in self.survivors]
            return
        top = (logits.float() / (self.judge.temperature or 1.0)).softmax(-1).amax(-1).tolist()
        of = dict(zip(rows or range(len(self.rows)), top, strict=True))
        self.claims[:, level] = [of.get(row, 0.0) for row in self.goes_on]

    def _carry(self, depths: Any) -> None:
        each = np.broadcast_to(np.asarray(depths), len(self.survivors)).tolist()
        chances = torch.stack(self.chances, 1) if self.chances else None
        for sequence, row, depth in zip(self.survivors, self.goes_on, each, strict=True):
            sequence.drafts = [level[row] for level in self.drafted[:depth]]
            sequence.chances = None if chances is None else chances[row, :depth]


def _ahead(row: Row, start: int, end: int) -> list[int]:
    """Text tokens start + 1 to end; 0 where the text is not that long (drafts that were rejected)."""
    known = row.sequence.text[start + 1 : end + 1]
    return known + [0] * (end - start - len(known))


def _least(asked: Any, most: Any) -> Any:
    if isinstance(asked, int) and isinstance(most, int):
        return min(asked, most)
    return np.minimum(asked, most)


def _array(values: Any) -> Int64:
    return np.fromiter(values, dtype=np.int64)
