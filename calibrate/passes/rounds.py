"""The passes of one speculative round, over buffers they share."""

from __future__ import annotations

from functools import partial

import torch

from calibrate.cells import Cell
from calibrate.passes.accept import Desk
from calibrate.passes.contract import Run, Sampling, Unsupported
from calibrate.passes.drafters import BlockDrafter, Drafter
from calibrate.passes.model import Decoder
from calibrate.passes.step import Part, Step, aligned, spread
from calibrate.passes.weights import Weights


class Round:
    """One cell opened: ``sequences`` rows of depth ``width - 1`` behind lengths spread around ``context``."""

    def __init__(self, target: Decoder, weights: Weights, cell: Cell, sampling: Sampling) -> None:
        if not cell.sequences or not cell.width:
            raise Unsupported(f"{cell.pass_}: needs at least one sequence of at least one token")
        self.target, self.weights = target, weights
        self.rows, self.width = cell.sequences, cell.width
        self.lengths = spread(cell.context, cell.sequences)
        self.slot = aligned(max(self.lengths) + 2 * self.width)
        logits = weights.random(self.rows * self.width, target.vocabulary)
        lengths = torch.tensor(self.lengths, device=weights.device)
        self.desk = Desk(lengths, self.width - 1, logits, sampling, seed=cell.sequences)

    def ids(self, count: int) -> torch.Tensor:
        """Random tokens."""
        return self.weights.ids(count, self.target.vocabulary)

    def verify(self) -> Run:
        """The target over the last token and the drafts of every row."""
        step = self.target.stack.plan(Part(self.lengths, self.width), slot=self.slot)
        return partial(self.target, self.ids(step.tokens), step, self.desk.logits)

    def chain(self, drafter: Drafter) -> Chain:
        """Drafts one after another."""
        return Chain(self, drafter)

    def draft_block(self, drafter: BlockDrafter) -> Run:
        """``width`` fresh features noted, and behind them a block of ``width`` tokens drafted at once."""
        behind = [length + self.width for length in self.lengths]
        fresh = drafter.stack.plan(Part(self.lengths, self.width), slot=self.slot)
        step = drafter.stack.plan(Part(behind, self.width, block=True), slot=self.slot)
        features = self.weights.random(fresh.tokens, drafter.feature_size)
        logits = self.weights.random(len(step.wanted), drafter.vocabulary)
        ids = self.ids(step.tokens)

        def run() -> None:
            drafter.block(ids, features, fresh, step, logits)
            for column, each in enumerate(logits.view(self.rows, self.width - 1, -1).unbind(1)):
                self.desk.propose(each, column, drafter.ids)

        return run


class Chain:
    """An autoregressive drafter's passes: each hands its token and hidden state to the next."""

    def __init__(self, at: Round, drafter: Drafter) -> None:
        self.at, self.drafter = at, drafter
        self.tokens = at.ids(at.rows) % drafter.vocabulary
        self.hidden = at.weights.random(at.rows, drafter.state_size)
        self.logits = at.weights.random(at.rows, drafter.vocabulary)

    def first(self) -> Run:
        """The catch-up pass over up to ``width`` fresh tokens of every row."""
        at = self.at
        step = self.drafter.stack.plan(Part(at.lengths, at.width, verified=False), slot=at.slot)
        features = at.weights.random(step.tokens, self.drafter.feature_size)
        ids = at.ids(step.tokens) % self.drafter.vocabulary

        def run() -> None:
            hidden = self.drafter.first(ids, features, step, self.logits)
            self._hand_on(hidden, 0)

        return run

    def next(self, drafted: int) -> Run:
        """A pass over one token per row, after ``drafted`` drafts of this round (0: on its own)."""
        at = self.at
        shift = at.width + drafted - 1 if drafted else 0
        lengths = [length + shift for length in at.lengths]
        step = self.drafter.stack.plan(Part(lengths, 1, verified=False), slot=at.slot)

        def run() -> None:
            hidden = self.drafter.next(self.tokens, self.hidden, step, self.logits)
            self._hand_on(hidden, drafted)

        return run

    def _hand_on(self, hidden: torch.Tensor, column: int) -> None:
        token = self.at.desk.propose(self.logits, column, self.drafter.ids)
        self.tokens.copy_(token)
        if self.drafter.state_size:
            self.hidden.copy_(hidden)


def prefill_run(target: Decoder, weights: Weights, cell: Cell) -> Run:
    """A prefill chunk behind ``prefix`` cached tokens, beside the decode rows of a mixed step."""
    if not cell.chunk:
        raise Unsupported(f"{cell.pass_}: needs a chunk of at least one token")
    chunk = Part([cell.prefix], cell.chunk, verified=False)
    rows = spread(cell.context, cell.sequences) if cell.width else []
    step: Step = target.stack.plan(*([Part(rows, cell.width)] if rows else []), chunk)
    logits = weights.random(len(step.wanted), target.vocabulary)
    return partial(target, weights.ids(step.tokens, target.vocabulary), step, logits)
