"""One step as it was scheduled, with the sums that a record of it holds."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from calibrate.reference.sequence import Row, Sequence


@dataclass(frozen=True)
class Plan:
    """``rows`` in the order of the batch; ``waiting`` requests were left in the queue."""

    rows: list[Row]
    waiting: int

    @cached_property
    def in_slots(self) -> list[Row]:
        """Decodes in the order of their slots, then prefill chunks: the order of the passes."""
        return sorted(self.rows, key=lambda row: (not row.decodes, row.sequence.slot))

    @cached_property
    def decodes(self) -> list[Row]:
        """Rows of one known token."""
        return [row for row in self.rows if row.decodes]

    @cached_property
    def chunks(self) -> list[Row]:
        """Rows of a prompt."""
        return [row for row in self.rows if not row.decodes]

    @cached_property
    def emitters(self) -> list[Row]:
        """Rows that put out tokens."""
        return [row for row in self.rows if row.emits]

    @property
    def survivors(self) -> list[Sequence]:
        """Sequences that put out tokens and go on."""
        return [row.sequence for row in self.emitters if not row.sequence.finished]

    @cached_property
    def tokens(self) -> int:
        """Tokens in the target's pass."""
        return sum(row.granted for row in self.rows)

    @property
    def prefill_tokens(self) -> int:
        """Of them, tokens of prompts."""
        return sum(row.granted for row in self.chunks)

    def sums(self, pad_queries: bool) -> dict[str, int]:
        """The columns of a step that its schedule alone decides."""
        verified = [row.verified for row in self.emitters]
        widest = max((row.granted for row in self.decodes), default=0)
        return {
            "sequences": len(self.rows),
            "decodes": len(self.decodes),
            "tokens": self.tokens,
            "padded_tokens": self.tokens,
            "logits": sum(verified) + len(verified),
            "context_tokens": sum(row.end for row in self.decodes),
            "query_context_tokens": sum(
                (widest if pad_queries else row.granted) * row.end for row in self.decodes
            ),
            "prefill_tokens": self.prefill_tokens,
            "prefill_pairs": sum(
                row.granted * row.start + row.granted * (row.granted + 1) // 2 for row in self.chunks
            ),
            "drafted": sum(verified),
            "depth": max(verified, default=0),
            "waiting": self.waiting,
        }
