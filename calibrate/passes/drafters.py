"""Drafters: a model of its own, an EAGLE-3 or MTP head, a head that drafts a block at once."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from calibrate.passes.contract import Unsupported
from calibrate.passes.model import Decoder, Norm, Stack, check_parameters, product, wanted
from calibrate.passes.parallel import World
from calibrate.passes.step import Step
from calibrate.passes.weights import Weights
from calibrate.profile import DrafterKind
from calibrate.shapes import Shape


class Drafter(Protocol):
    """Proposes tokens after those it is given.

    ``feature_size`` is the width of the target's features that a first pass takes (0: none) and
    ``state_size`` that of the hidden state which one pass hands to the next. ``ids`` maps its
    vocabulary to the target's (None: the same). ``parameters`` are its own.
    """

    stack: Stack
    vocabulary: int
    feature_size: int
    state_size: int
    ids: Tensor | None
    parameters: int

    def first(self, ids: Tensor, features: Tensor, step: Step, logits: Tensor) -> Tensor:
        """The pass over fresh tokens ``ids``; returns the hidden states of the wanted tokens."""
        ...

    def next(self, ids: Tensor, hidden: Tensor, step: Step, logits: Tensor) -> Tensor:
        """One further pass over the token just proposed and the state of the pass before."""
        ...


class DraftModel:
    """A separate small model."""

    feature_size = state_size = 0
    ids: Tensor | None = None

    def __init__(self, shape: Shape, weights: Weights, target: Decoder, positions: int) -> None:
        self.decoder = Decoder(shape, weights, World(), positions)
        self.stack, self.parameters = self.decoder.stack, self.decoder.parameters
        self.vocabulary = self.decoder.vocabulary
        if self.vocabulary < target.vocabulary:
            self.ids = torch.arange(self.vocabulary, device=weights.device)
        elif self.vocabulary > target.vocabulary:
            raise Unsupported(f"{shape.name}: vocabulary {self.vocabulary} exceeds {target.vocabulary}")

    def first(self, ids: Tensor, features: Tensor, step: Step, logits: Tensor) -> Tensor:
        """Run the model."""
        self.decoder(ids, step, logits)
        return features

    next = first


class Eagle:
    """EAGLE-3 (2503.01840): one layer over (embedding, fused features), a head of its own."""

    def __init__(self, shape: Shape, weights: Weights, target: Decoder, positions: int) -> None:
        before, hidden = weights.parameters, shape.head.k
        self.fuse, self.feature_size = weights.linear(*product(shape, "fuse")), product(shape, "fuse")[1]
        self.stack, self.norm = Stack(shape, weights, World(), positions), Norm(hidden, weights)
        self.table, self.embedding_norm = target_table(target, hidden), Norm(hidden, weights)
        self.vocabulary, self.state_size = shape.head.n, hidden
        self.head = weights.unrounded(weights.matrix(shape.head.n, hidden))
        self.ids = subset(self.vocabulary, target.vocabulary, weights)
        self.parameters = weights.parameters - before

    def first(self, ids: Tensor, features: Tensor, step: Step, logits: Tensor) -> Tensor:
        """Fuse fresh features, then as ``next``."""
        return self.next(ids, self.fuse(features), step, logits)

    def next(self, ids: Tensor, hidden: Tensor, step: Step, logits: Tensor) -> Tensor:
        """The layer, with the embedding beside the hidden state."""
        hidden = wanted(self.stack(hidden, step, beside=self.embedding_norm(self.table[ids])), step)
        self.head(self.norm(hidden), logits)
        return hidden


class Mtp:
    """A multi-token-prediction layer (2412.19437, section 2.2): table and head are the target's."""

    ids: Tensor | None = None

    def __init__(self, shape: Shape, weights: Weights, target: Decoder, positions: int) -> None:
        before, hidden = weights.parameters, shape.head.k
        self.fuse = weights.linear(*product(shape, "fuse"))
        self.stack, self.target = Stack(shape, weights, World(), positions), target
        self.norms = [Norm(hidden, weights) for _ in range(3)]
        self.table, self.vocabulary = target_table(target, hidden), target.vocabulary
        self.feature_size = self.state_size = hidden
        self.parameters = weights.parameters - before

    def first(self, ids: Tensor, features: Tensor, step: Step, logits: Tensor) -> Tensor:
        """The layer over (embedding, hidden state), through one product."""
        both = torch.cat((self.norms[0](self.table[ids]), self.norms[1](features)), -1)
        hidden = wanted(self.stack(self.fuse(both), step), step)
        self.target.answer(self.norms[2](hidden), logits)
        return hidden

    next = first


class BlockDrafter:
    """A DFlash-style head: a block of tokens in one pass, each seeing all others.

    Features of the fresh tokens are fused once; every layer makes keys and values of them, which
    the block attends to. Table and head are the target's.
    """

    ids: Tensor | None = None
    state_size = 0

    def __init__(self, shape: Shape, weights: Weights, target: Decoder, positions: int) -> None:
        before, hidden = weights.parameters, shape.head.k
        self.fuse, self.feature_size = weights.linear(*product(shape, "fuse")), product(shape, "fuse")[1]
        self.stack = Stack(shape, weights, World(), positions, split=True)
        self.feature_norm, self.norm = Norm(hidden, weights), Norm(hidden, weights)
        self.target, self.table, self.vocabulary = target, target_table(target, hidden), target.vocabulary
        self.parameters = weights.parameters - before

    def block(self, ids: Tensor, features: Tensor, fresh: Step, step: Step, logits: Tensor) -> None:
        """Note the features of the ``fresh`` tokens, then draft the block of ``step`` behind them."""
        fused = self.feature_norm(self.fuse(features))
        noted, at = self.stack.context(fresh), self.stack.context(step)
        hidden = self.table[ids]
        for i in self.stack.order:
            layer, cached = self.stack.layers[i], self.stack.cached[i]
            assert layer.attention is not None
            layer.attention.note(fused, noted, cached)
            hidden = layer(hidden, at, cached)
        self.target.answer(self.norm(wanted(hidden, step)), logits)

    def first(self, ids: Tensor, features: Tensor, step: Step, logits: Tensor) -> Tensor:
        """There is no such pass."""
        raise Unsupported("a parallel drafter has draft_block alone")

    next = first


AnyDrafter = DraftModel | Eagle | Mtp | BlockDrafter

KINDS: dict[str, type[AnyDrafter]] = {
    "draft_model": DraftModel,
    "eagle": Eagle,
    "mtp": Mtp,
    "parallel": BlockDrafter,
}


def build_drafter(
    kind: DrafterKind, shape: Shape, weights: Weights, target: Decoder, positions: int
) -> AnyDrafter:
    """The drafter of this kind; every rank of several makes and runs it whole."""
    made = KINDS[kind](shape, weights, target, positions)
    check_parameters(shape, made.parameters)
    return made


def target_table(target: Decoder, hidden: int) -> Tensor:
    """The target's input table, for a head of the same width."""
    if target.table.shape[1] != hidden:
        raise Unsupported(
            f"a head of width {hidden} cannot use the target's table of width {target.table.shape[1]}"
        )
    return target.table


def subset(size: int, whole: int, weights: Weights) -> Tensor | None:
    """Which of the target's tokens a reduced vocabulary holds; None when it holds all."""
    if size > whole:
        raise Unsupported(f"a draft vocabulary of {size} exceeds the target's {whole}")
    if size == whole:
        return None
    return (
        torch.randperm(whole, generator=torch.Generator().manual_seed(0))[:size].sort()[0].to(weights.device)
    )
