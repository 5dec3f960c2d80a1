"""Which drafts survive, and the token behind them: by the target, or by luck that is fixed beforehand.

Greedy: a draft is kept while it is the target's best token. Sampled: speculative sampling (2211.17192,
algorithm 1), whose output is distributed as the target's. Forced: accepted counts come from a stated
path, so that an engine and its simulation share every accept; the decision is computed all the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from calibrate.passes.accept import draw
from calibrate.reference.plan import Plan
from calibrate.reference.sequence import Row


@dataclass(frozen=True)
class Forced:
    """Fixed luck: ``runs[request][p]`` drafts are accepted of a round that starts at output position p.

    ``claims[request][p, j]`` is what the drafter says of draft j there.
    """

    runs: Mapping[int, NDArray[Any]]
    claims: Mapping[int, NDArray[Any]] = field(default_factory=dict)


class Judge:
    """Decides a step's rounds at one temperature (0: greedy)."""

    def __init__(self, temperature: float, generator: torch.Generator, forced: Forced | None) -> None:
        self.temperature, self.generator, self.forced = temperature, generator, forced

    def decide(self, plan: Plan, logits: Tensor) -> None:
        """Set ``accepted`` and ``emitted`` of the emitting rows, and append to their texts.

        ``logits`` are those of the emitters in slot order, ``verified + 1`` for each.
        """
        rows = [row for row in plan.in_slots if row.emits]
        if not rows:
            return
        after = self._sampled(rows, logits) if self.temperature else self._greedy(rows, logits)
        for row, token in zip(rows, after, strict=True):
            self._write(row, token)

    def _write(self, row: Row, after: int) -> None:
        sequence = row.sequence
        row.emitted = min(row.accepted + 1, sequence.end - len(sequence.text))
        sequence.text += [*sequence.drafts[: row.accepted], after][: row.emitted]

    def _greedy(self, rows: list[Row], logits: Tensor) -> list[int]:
        best = logits.argmax(-1).tolist()
        after, first = [], 0
        for row in rows:
            kept = [
                a == b for a, b in zip(row.sequence.drafts, best[first : first + row.verified], strict=False)
            ]
            row.accepted = self._forced(row, _leading(kept))
            after.append(best[first + row.accepted])
            first += row.verified + 1
        return after

    def _sampled(self, rows: list[Row], logits: Tensor) -> list[int]:
        p = (logits.float() / self.temperature).softmax(-1)
        kept, q = self._kept(rows, p), {}
        first = 0
        ends: list[int] = []
        for row in rows:
            verdict, kept = kept[: row.verified], kept[row.verified :]
            row.accepted = self._forced(row, _leading(verdict))
            if row.accepted < row.verified and row.sequence.chances is not None:
                q[len(ends)] = row.sequence.chances[row.accepted]
            ends.append(first + row.accepted)
            first += row.verified + 1
        return self._draw(p[ends], q)

    def _kept(self, rows: list[Row], p: Tensor) -> list[bool]:
        """Whether each draft, had those before it been kept, would be."""
        drafts = [draft for row in rows for draft in row.sequence.drafts[: row.verified]]
        if not drafts:
            return []
        first = 0
        at: list[int] = []
        for row in rows:
            at += range(first, first + row.verified)
            first += row.verified + 1
        q = torch.cat(
            [row.sequence.chances[: row.verified] for row in rows if row.sequence.chances is not None]
        )
        tokens = torch.tensor(drafts, device=p.device)[:, None]
        p_draft, q_draft = p[at].gather(1, tokens)[:, 0], q.gather(1, tokens)[:, 0]
        luck = torch.empty_like(p_draft).uniform_(generator=self.generator)
        kept: list[bool] = (luck * q_draft < p_draft).tolist()
        return kept

    def _draw(self, p: Tensor, q: Mapping[int, Tensor]) -> list[int]:
        """Tokens by max(0, p - q) after a rejection, by p otherwise."""
        if q:
            where = list(q)
            rest = (p[where] - torch.stack(list(q.values()))).clamp_min_(0)
            p[where] = torch.where(rest.sum(-1, keepdim=True) > 0, rest, p[where])
        tokens: list[int] = draw(p, self.generator).tolist()
        return tokens

    def _forced(self, row: Row, accepted: int) -> int:
        if self.forced is None:
            return accepted
        run = self.forced.runs[row.sequence.request.number]
        return min(int(run[row.sequence.produced]), row.verified)


def _leading(kept: list[bool]) -> int:
    return kept.index(False) if False in kept else len(kept)
