"""Which cells are calibrated for a comparison: the shapes that its engine will meet, and no others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from calibrate.cells import Cell, Execution
from calibrate.grid import Grid
from calibrate.session import Options


@dataclass(frozen=True)
class Reach:
    """The bounds of what is served: sequences, drafts, step tokens, and the longest text."""

    sequences: int
    depth: int
    tokens: int
    longest: int


@dataclass(frozen=True, kw_only=True)
class ServedOptions(Options):
    """A calibration within the bounds of what is served afterwards."""

    reach: Reach
    execution: Execution = "cpu"

    @property
    def grid(self) -> Grid:
        """Rounds over sequences x width, some at other contexts, and prefill alone and beside decodes."""
        cells = list(dict.fromkeys(Cell.model_validate(each) for each in _cells(self)))
        rounds = [cell for cell in cells if cell.pass_ == "round" and cell.context == _context(self.reach)]
        return Grid(tuple(cells), (rounds[0], rounds[len(rounds) // 2], rounds[-1]))


def _context(reach: Reach) -> int:
    """The usual KV length of a sequence: prompts are longer than half of the text."""
    return reach.longest // 2


def _cells(options: ServedOptions) -> Iterator[dict[str, Any]]:
    reach, common = options.reach, {"execution": options.execution}
    most, longest = reach.sequences, reach.longest
    rows = list(
        product(_rising(1, most // 8, most // 4, most // 2, 3 * most // 4, most), _widths(reach.depth))
    )
    corners = [rows[0], rows[len(rows) // 2], rows[-1]]
    for context, some in ((_context(reach), rows), (longest, corners), (longest // 6, corners)):
        for sequences, width in some:
            drafter = next(iter(options.drafters)) if width > 1 else ""
            shape = {"sequences": sequences, "width": width, "context": context, "drafter": drafter}
            yield {"pass": "round", **shape, **common}
    none = {"sequences": 0, "width": 0, "context": 0}
    for chunk, prefix in product(
        _rising(reach.tokens // 4, reach.tokens // 2, reach.tokens), (0, longest // 4)
    ):
        yield {"pass": "prefill", **none, "chunk": chunk, "prefix": prefix, **common}
    for share in (4, 2):
        shape = {"sequences": most // share, "width": 1, "context": _context(reach)}
        yield {"pass": "mixed", **shape, "chunk": reach.tokens // share, **common}


def _widths(depth: int) -> list[int]:
    return _rising(1, 2, 3, depth + 1)


def _rising(*counts: int) -> list[int]:
    return sorted({max(count, 1) for count in counts})
