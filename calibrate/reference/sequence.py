"""A request inside the engine, and its part of one step."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from calibrate.reference.serving import Request


@dataclass(eq=False)
class Sequence:
    """A request that waits or runs.

    ``text`` is prompt and output so far; ``computed`` of its tokens are in the target's cache, and
    ``drafter_computed`` in the drafter's. ``drafts`` are carried into the next step; ``chances``
    are what they were drawn from, shape (drafts, vocabulary), when sampled.
    """

    request: Request
    sent_ns: int
    text: list[int]
    slot: int = -1
    computed: int = 0
    drafter_computed: int = 0
    drafts: list[int] = field(default_factory=list)
    chances: Tensor | None = None
    scheduled_ns: int = -1
    first_token_ns: int = -1
    last_emit_ns: int = -1
    rounds: int = 0
    drafted: int = 0
    accepted: int = 0

    @property
    def produced(self) -> int:
        """Output tokens so far."""
        return len(self.text) - len(self.request.prompt)

    @property
    def end(self) -> int:
        """Tokens at which it is finished."""
        return len(self.request.prompt) + self.request.output_tokens

    @property
    def finished(self) -> bool:
        """Whether all output is there."""
        return len(self.text) >= self.end


@dataclass(eq=False)
class Row:
    """A sequence's part of one step: ``granted`` tokens from ``start`` on, ``known`` of them no drafts.

    ``accepted`` and ``emitted`` are set by the verdict.
    """

    sequence: Sequence
    granted: int
    known: int
    start: int
    accepted: int = 0
    emitted: int = 0

    @property
    def emits(self) -> bool:
        """Whether all known tokens were granted, so that the next token comes out."""
        return self.granted >= self.known

    @property
    def verified(self) -> int:
        """Drafts verified."""
        return self.granted - self.known if self.emits else 0

    @property
    def decodes(self) -> bool:
        """Whether it computes one known token, and drafts at most."""
        return self.known == 1

    @property
    def end(self) -> int:
        """Tokens in the target's cache after the pass, rejected ones included."""
        return self.start + self.granted

    @property
    def ids(self) -> list[int]:
        """The tokens of the target's pass."""
        sequence = self.sequence
        return (sequence.text[self.start :] + sequence.drafts)[: self.granted]
