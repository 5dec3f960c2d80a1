"""The running batch: one column per sequence, in the engine's order, as int64 arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sim.acceptance.base import Path
from sim.policies.base import Tree

Int64 = NDArray[np.int64]

TOKENS: Final = 0  # known tokens: prompt and output so far
COMPUTED: Final = 1  # tokens whose KV is in memory
POINTER: Final = 2  # where the next round's run length stands in the arena
END: Final = 3  # tokens at which the sequence is finished
DRAFT: Final = 4  # drafts carried into the next step
GRANTED: Final = 5  # tokens scheduled in this step
KNOWN: Final = 6  # of these, tokens that are not drafts, were all granted
HELD: Final = 7  # KV blocks held
REQUEST: Final = 8
ROUNDS: Final = 9
DRAFTED: Final = 10
ACCEPTED: Final = 11
LAST_EMIT: Final = 12  # when it last emitted tokens, ns
FRESH: Final = 13  # 1 until it emits for the first time since it was (re)admitted
CLASS: Final = 14
PROMPT: Final = 15  # prompt tokens
FIRST: Final = 16  # when it emitted its first token, ns; -1 before
HOLED: Final = 17  # 1 once its drafter's KV misses a step
CACHED: Final = 18  # its first KV blocks whose content is cached
SENT: Final = 19  # tokens at its last streamed chunk; only where chunks hold several steps' tokens
PADS: Final = 20  # of its drafts, those that fill it up to the step's largest depth
ROWS: Final = 21


@dataclass(slots=True)
class Sequence:
    """One request inside the replica: what is needed rarely, or while it waits."""

    request: int
    class_id: int
    prompt_tokens: int
    output_tokens: int
    arrival_ns: int
    sent_ns: int
    prefix_group: int = -1
    prefix_tokens: int = 0
    hashes: tuple[int, ...] = ()  # chains of the prompt's hashed blocks, and the tokens of one
    hash_block: int = 1
    kept_tokens: int = 0  # tokens whose KV lies in host memory while it waits
    path: Path | None = None
    produced: int = 0
    scheduled_ns: int = -1
    first_token_ns: int = -1
    last_emit_ns: int = -1
    sent_tokens: int = 0
    preemptions: int = 0
    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    streamed: int = 0  # output tokens its client had before its replica failed

    @property
    def tokens(self) -> int:
        """Tokens that must be in KV memory before the next one: prompt and output so far."""
        return self.prompt_tokens + self.produced


class Arena:
    """Run lengths, matches and confidences of the running sequences, one row of fixed width each.

    With a ``tree``, runs are those of the whole tree, and ``reach`` says what smaller ones accept.
    """

    def __init__(
        self, rows: int, width: int, max_depth: int, confidence: bool, tree: Tree | None = None
    ) -> None:
        self.width, self.tree = width, tree
        self.runs = np.zeros(rows * width, dtype=np.uint8)
        self.reach = None if tree is None else np.zeros((rows * width, tree.depth), dtype=np.uint16)
        self.found: NDArray[np.bool_] | None = None
        self.claims = np.zeros((rows * width if confidence else 0, max_depth), dtype=np.float32)
        self._free = list(range(rows - 1, -1, -1))

    def put(self, path: Path, length: int) -> int:
        """Store a path of ``length`` output positions; returns the index of its position 0."""
        start = self._free.pop() * self.width
        if self.reach is None or self.tree is None:
            self.runs[start : start + length] = path.run
        else:
            reach = self.reach[start : start + length]
            reach[:] = path.reach(self.tree)
            self.runs[start : start + length] = (reach <= self.tree.nodes).sum(axis=1)
        self._note_matches(path, start, length)
        if len(self.claims):
            self.claims[start : start + length] = path.confidence()
        return start

    def _note_matches(self, path: Path, start: int, length: int) -> None:
        if self.found is None and path.found is not None:
            self.found = np.ones(len(self.runs), dtype=np.bool_)
        if self.found is not None:
            self.found[start : start + length] = True if path.found is None else path.found

    def accepted(self, pointers: Int64, verified: Int64) -> Int64:
        """Drafts accepted of those verified, in a round that starts at each of the pointers."""
        if self.reach is None:
            return np.minimum(self.runs.take(pointers), verified)
        accepted: Int64 = np.count_nonzero(self.reach.take(pointers, axis=0) <= verified[:, None], axis=1)
        return accepted

    def thin(self, start: int, most: NDArray[np.uint8]) -> None:
        """Cut the runs from index ``start`` on to ``most``, one for each output position."""
        stop = start + len(most)
        np.minimum(self.runs[start:stop], most, out=self.runs[start:stop])
        if self.reach is not None and self.tree is not None:
            lost = np.arange(self.tree.depth) >= most[:, None]
            self.reach[start:stop][lost] = self.tree.nodes + 1

    def drop(self, pointer: int) -> None:
        """Free the row that ``pointer`` points into."""
        self._free.append(pointer // self.width)


class RunningBatch:
    """Columns of running sequences; ``n`` of them are in use."""

    def __init__(self, capacity: int) -> None:
        self.n = 0
        self.a: Int64 = np.zeros((ROWS, capacity), dtype=np.int64)
        self.live: dict[int, Sequence] = {}

    def row(self, name: int) -> Int64:
        """View of one row over the sequences in use."""
        return self.a[name, : self.n]

    def append(
        self, sequence: Sequence, pointer: int, granted: int, held: int, computed: int = 0, cached: int = 0
    ) -> None:
        """Add a sequence at the end, with its first chunk granted; ``computed`` tokens were cached."""
        i = self.n
        tokens = sequence.tokens
        self.a[:, i] = (
            tokens,
            computed,
            pointer + sequence.produced,
            sequence.prompt_tokens + sequence.output_tokens,
            0,
            granted,
            tokens - computed,
            held,
            sequence.request,
            sequence.rounds,
            sequence.drafted,
            sequence.accepted,
            sequence.last_emit_ns,
            1,
            sequence.class_id,
            sequence.prompt_tokens,
            sequence.first_token_ns,
            0,
            cached,
            sequence.sent_tokens,
            0,
        )
        self.live[sequence.request] = sequence
        self.n = i + 1

    def remove(self, index: int) -> Sequence:
        """Take one sequence out, its counters written back, and close the gap."""
        column = self.a[:, index].tolist()
        sequence = self.live.pop(column[REQUEST])
        sequence.produced = column[TOKENS] - sequence.prompt_tokens
        sequence.rounds, sequence.drafted, sequence.accepted = column[ROUNDS : ACCEPTED + 1]
        sequence.last_emit_ns, sequence.sent_tokens = column[LAST_EMIT], column[SENT]
        self.a[:, index : self.n - 1] = self.a[:, index + 1 : self.n]
        self.n -= 1
        return sequence
