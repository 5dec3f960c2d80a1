"""What the engine runs: a target and a drafter over slots, whatever they are made of.

``Transformer`` and ``Head`` run the models that calibration times (random weights); ``ByteTarget`` and
``ByteDrafter`` a trained pair of byte models, whose acceptance is real.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

from calibrate.passes.contract import Unsupported
from calibrate.passes.drafters import AnyDrafter, BlockDrafter, DraftModel
from calibrate.passes.drafters import Drafter as TimedDrafter
from calibrate.passes.model import Decoder, Stack
from calibrate.passes.step import Step, aligned
from calibrate.recording.model import ByteModel, Cache
from calibrate.reference.layout import Layout, Rows, over_slots


class Target(Protocol):
    """A model over slots; what a pass writes behind the text is overwritten before it is read."""

    device: torch.device
    vocabulary: int

    def lay_out(self, rows: Rows, wanted: list[int]) -> Any:
        """Everything about a pass that does not depend on tokens: host work, apart from the pass."""
        ...

    def run(self, laid: Any, ids: Tensor) -> Tensor:
        """Logits of the wanted tokens, shape (wanted, vocabulary), of ``ids`` row by row."""
        ...

    def move(self, source: int, to: int, tokens: int) -> None:
        """Copy the cache of the first ``tokens`` positions from one slot to another."""
        ...


class Drafter(Target, Protocol):
    """A target's small companion, which reads the same text without its first token.

    So its cache position i belongs to text token i + 1, and its passes over a step have the shape of
    the target's (the shift by one of EAGLE's inputs, vllm/v1/spec_decode/eagle.py).
    """

    def next(self, laid: Any, ids: Tensor, kept: Tensor | None) -> Tensor:
        """A pass over one token of each row, ``kept`` of those of the pass before (None: all)."""
        ...

    def in_target(self, tokens: Tensor) -> Tensor:
        """The target's names of tokens of this vocabulary."""
        ...


class _Slotted:
    """A stack's caches, cut into slots."""

    def __init__(self, stack: Stack, sequences: int, slot_tokens: int) -> None:
        if stack.state.layers:
            raise Unsupported("recurrent layers: the reference engine rolls back attention caches alone")
        weights = stack.weights
        self.device, self.stack = weights.device, stack
        self.layout = Layout(slot_tokens, stack.shared, weights.device, weights.dtype)
        if self.layout.slot > len(stack.rope):
            raise Unsupported(f"slots of {self.layout.slot} tokens exceed the {len(stack.rope)} positions")
        stack.kv.reserve(sequences * self.layout.slot)
        for layer in stack.layers:
            if layer.attention is not None:
                layer.attention.attend = over_slots(layer.attention.attend)

    def lay_out(self, rows: Rows, wanted: list[int]) -> Step:
        """See ``Target``."""
        return self.layout(rows, wanted)

    def move(self, source: int, to: int, tokens: int) -> None:
        """See ``Target``."""
        for pool in (*self.stack.kv.keys, *self.stack.kv.values):
            slots = pool[: len(pool) // self.layout.slot * self.layout.slot].view(
                -1, self.layout.slot, *pool.shape[1:]
            )
            slots[to, :tokens] = slots[source, :tokens]


class Transformer(_Slotted):
    """A decoder of ``calibrate.passes``."""

    def __init__(self, decoder: Decoder, sequences: int, slot_tokens: int) -> None:
        super().__init__(decoder.stack, sequences, slot_tokens)
        self.decoder, self.vocabulary = decoder, decoder.vocabulary

    def run(self, laid: Step, ids: Tensor) -> Tensor:
        """See ``Target``."""
        logits = _logits(self.stack, laid, self.vocabulary)
        self.decoder(ids, laid, logits)
        return logits


class Head(_Slotted):
    """A draft model, or an EAGLE or MTP head, of ``calibrate.passes``.

    A head's features of the target are random numbers: it costs what it would, and drafts nonsense.
    """

    def __init__(
        self, drafter: AnyDrafter, target: Decoder, sequences: int, slot_tokens: int, most_tokens: int
    ) -> None:
        if isinstance(drafter, BlockDrafter):
            raise Unsupported("the reference engine drafts one token after another: give no parallel drafter")
        if isinstance(drafter, DraftModel) and drafter.vocabulary < target.vocabulary:
            raise Unsupported("the draft model does not know all of the target's tokens")
        super().__init__(drafter.stack, sequences, slot_tokens)
        self.drafter: TimedDrafter = drafter
        self.vocabulary = drafter.vocabulary
        self.features = drafter.stack.weights.random(most_tokens, drafter.feature_size)
        self.hidden = self.features

    def run(self, laid: Step, ids: Tensor) -> Tensor:
        """See ``Target``: the first pass, over fresh tokens."""
        logits = _logits(self.stack, laid, self.vocabulary)
        self.hidden = self.drafter.first(ids, self.features[: len(ids)], laid, logits)
        return logits

    def next(self, laid: Step, ids: Tensor, kept: Tensor | None) -> Tensor:
        """See ``Drafter``."""
        logits = _logits(self.stack, laid, self.vocabulary)
        hidden = self.hidden if kept is None or not self.drafter.state_size else self.hidden[kept]
        self.hidden = self.drafter.next(ids, hidden, laid, logits)
        return logits

    def in_target(self, tokens: Tensor) -> Tensor:
        """See ``Drafter``."""
        return tokens if self.drafter.ids is None else self.drafter.ids[tokens]


def _logits(stack: Stack, step: Step, vocabulary: int) -> Tensor:
    weights = stack.weights
    return torch.empty(len(step.wanted), vocabulary, device=weights.device, dtype=weights.dtype)


class _SlotView(Cache):
    """Some neighbouring slots of a cache, as a cache of their own."""

    def __init__(self, values: Tensor, length: Tensor) -> None:
        self.values, self.length = values, length


class ByteTarget:
    """A byte model of ``calibrate.recording``; rows of unequal widths are padded to the widest."""

    def __init__(self, model: ByteModel, sequences: int, slot_tokens: int) -> None:
        self.model, self.vocabulary = model, model.embedding.num_embeddings
        self.device, self.slot = model.embedding.weight.device, aligned(slot_tokens)
        self.cache = model.new_cache(sequences, self.slot)

    def lay_out(self, rows: Rows, wanted: list[int]) -> tuple[Rows, Tensor]:
        """See ``Target``."""
        return rows, torch.tensor(wanted, dtype=torch.long)

    def run(self, laid: tuple[Rows, Tensor], ids: Tensor) -> Tensor:
        """See ``Target``."""
        rows, wanted = laid
        groups = [list(range(rows.together))] if rows.together else []
        groups += [[row] for row in range(rows.together, len(rows.slots))]
        parts = torch.split(ids, [sum(rows.widths[row] for row in group) for group in groups])
        logits = [self._pass(rows, group, part) for group, part in zip(groups, parts, strict=True)]
        return torch.cat(logits)[wanted]

    def _pass(self, rows: Rows, group: list[int], ids: Tensor) -> Tensor:
        """One padded pass over the slots from the group's first to its last."""
        slots, width = [rows.slots[row] for row in group], max(rows.widths[row] for row in group)
        first, last = min(slots), max(slots) + 1
        index = [(rows.slots[r] - first) * width + j for r in group for j in range(rows.widths[r])]
        tokens = torch.zeros((last - first) * width, dtype=torch.long)
        tokens[index] = ids
        # A slot that is not in the pass writes to the end of its room, which no text reaches.
        length = torch.full((last - first,), self.slot - width)
        length[[slot - first for slot in slots]] = torch.tensor([rows.starts[row] for row in group])
        view = _SlotView(self.cache.values[:, :, first:last], length)
        logits: Tensor = self.model(tokens.view(-1, width), view).flatten(0, 1)
        return logits[index]

    def move(self, source: int, to: int, tokens: int) -> None:
        """See ``Target``."""
        self.cache.values[:, :, to, :, :tokens] = self.cache.values[:, :, source, :, :tokens]


class ByteDrafter(ByteTarget):
    """A byte model that drafts."""

    def next(self, laid: tuple[Rows, Tensor], ids: Tensor, kept: Tensor | None) -> Tensor:
        """See ``Drafter``."""
        return self.run(laid, ids)

    def in_target(self, tokens: Tensor) -> Tensor:
        """See ``Drafter``."""
        return tokens
