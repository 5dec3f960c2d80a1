"""Which cells a calibration measures: token counts in edge pairs, several splits of each, contexts.

A *round* cell (pass ``round``, width = k + 1) stands for all passes of one speculative round;
``pass_cell`` names the cell of each. Plain decoding is a round of width 1 without a drafter, and
widths that no drafter makes are ``verify`` cells: one sequence of n tokens is the pure depth line.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import cycle

from calibrate.cells import Cell, Execution, PassName

GPU_TOKENS = (1, 2, 4, 8, 16, 17, 24, 32, 33, 48, 64, 65, 96, 128, 129, 192, 256, 257, 384, 512)
CPU_TOKENS = (1, 2, 3, 4, 6, 8, 12, 16, 17, 24, 32, 33, 48, 64, 65, 96, 128)
QUICK_TOKENS = (1, 4, 16, 17, 64, 65, 128, 129, 256)

DEEPEST = 9
"""Widest round: depth 8; wider splits are verify passes only."""

FAVOURITES = (4, 8, 2)
"""Widths that the token counts take in turn, so that every depth of a policy's ladder is near a cell."""


@dataclass(frozen=True)
class Plan:
    """The bounds of a grid.

    ``context`` is the base KV length, ``contexts`` the others, measured on ``context_rows``
    (sequences, width) as long as sequences x context stays within ``most_kv`` tokens.
    """

    tokens: tuple[int, ...]
    context: int
    contexts: tuple[int, ...]
    context_rows: tuple[tuple[int, int], ...]
    chunks: tuple[int, ...]
    prefixes: tuple[int, ...]
    mixed: tuple[tuple[int, int], ...]
    eager_rows: tuple[tuple[int, int], ...]
    most_kv: int
    execution: Execution


GPU = Plan(
    tokens=GPU_TOKENS,
    context=1024,
    contexts=(256, 4096, 16384),
    context_rows=tuple((b, w) for w in (1, 4, 8) for b in (1, 4, 16, 64, 128)),
    chunks=(128, 512, 2048, 8192),
    prefixes=(0, 4096),
    mixed=((8, 256), (32, 256), (128, 256), (8, 1024), (32, 1024), (128, 1024)),
    eager_rows=((1, 1), (1, 4), (8, 4), (32, 1), (32, 4), (128, 4)),
    most_kv=262144,
    execution="cuda_graph",
)
CPU = Plan(
    tokens=CPU_TOKENS,
    context=256,
    contexts=(64, 1024),
    context_rows=tuple((b, w) for w in (1, 4) for b in (1, 4, 16, 32)),
    chunks=(32, 128),
    prefixes=(0, 512),
    mixed=((4, 32), (16, 32), (4, 96)),
    eager_rows=(),
    most_kv=32768,
    execution="cpu",
)


def quick(plan: Plan) -> Plan:
    """The same bounds with about a third of the cells."""
    tokens = tuple(t for t in QUICK_TOKENS if t <= plan.tokens[-1])
    return replace(
        plan,
        tokens=tokens,
        contexts=plan.contexts[-1:],
        context_rows=plan.context_rows[::3],
        chunks=plan.chunks[-2:],
        mixed=plan.mixed[:1],
        eager_rows=plan.eager_rows[:2],
    )


def small(plan: Plan, tokens: int, context: int) -> Plan:
    """The same plan cut to at most ``tokens`` tokens and KV lengths of at most ``context``."""
    kept = tuple(t for t in plan.tokens if t <= tokens)
    return replace(
        plan,
        tokens=kept,
        context=min(plan.context, context // 2),
        contexts=tuple(c for c in plan.contexts if c <= context),
        context_rows=tuple(row for row in plan.context_rows if row[0] * row[1] <= tokens),
        chunks=tuple(c for c in plan.chunks if c <= tokens),
        prefixes=tuple(p for p in plan.prefixes if p <= context // 2),
        mixed=tuple((b, c) for b, c in plan.mixed if b + c <= tokens),
    )


@dataclass(frozen=True)
class Grid:
    """Cells to measure, each once per pass over the grid, and the anchors that are repeated."""

    cells: tuple[Cell, ...]
    anchors: tuple[Cell, ...]

    @property
    def most_tokens(self) -> int:
        """The largest decode step (prefill chunks apart)."""
        return max(c.sequences * c.width for c in self.cells)


def build_grid(plan: Plan, drafters: Sequence[str], deepest: int = DEEPEST) -> Grid:
    """All cells: the first drafter meets the whole grid, each further one every second token count.

    The target's own passes do not depend on the drafter. ``deepest`` bounds the width of rounds.
    """
    first, further = (drafters[0] if drafters else ""), drafters[1:]
    rows = _decode_rows(plan)
    cells = [_row(plan, b, w, plan.context, first, deepest) for b, w in rows]
    cells += _contexts(plan, first, deepest)
    cells += _prefill(plan)
    cells += [_eager(_row(plan, b, w, plan.context, first, deepest)) for b, w in plan.eager_rows]
    for name in further:
        cells += _further(plan, rows, name, deepest)
    return Grid(_unique(cells), _anchors(cells))


def with_collectives(grid: Grid, plan: Plan) -> Grid:
    """The same grid with the sums over the ranks timed alone, at every token count and chunk."""
    rows = [{"sequences": n, "width": 1, "chunk": 0} for n in plan.tokens]
    chunks = [{"sequences": 0, "width": 0, "chunk": n} for n in plan.chunks if n not in plan.tokens]
    common = {"pass": "collective", "context": 0, "execution": plan.execution}
    cells = (Cell.model_validate({**common, **each}) for each in (*rows, *chunks))
    return replace(grid, cells=(*grid.cells, *cells))


def splits(tokens: int, favourite: int = 4, deepest: int = DEEPEST) -> tuple[tuple[int, int], ...]:
    """Up to three ways (sequences, width) to make up ``tokens``.

    Pure breadth (width 1), pure depth (one sequence), and of the widths that a drafter makes and
    that divide ``tokens`` the one nearest to ``favourite``.
    """
    ways = [(tokens, 1)] if tokens == 1 else [(tokens, 1), (1, tokens)]
    widths = [w for w in range(2, deepest + 1) if tokens % w == 0 and w < tokens]
    inner = sorted(widths, key=lambda w: (abs(w - favourite), -w))[:1]
    return (*ways, *((tokens // w, w) for w in inner))


def pass_cell(cell: Cell, name: PassName) -> Cell:
    """The cell of one pass of a round: what that pass computes, by the engine's rules.

    The first draft pass and the block cover every token of the step (rejected ones included); a
    further draft pass one token per sequence. Verification and acceptance are the target's.
    """
    if name in ("round", "host"):
        return _as(cell, name, cell.width, cell.drafter)
    if name in ("verify", "accept"):
        return _as(cell, name, cell.width, "")
    return _as(cell, name, 1 if name == "draft_next" else cell.width, cell.drafter)


def between(cell: Cell, cells: Iterable[Cell]) -> tuple[Cell, ...]:
    """The two cells halfway (in sequences) between ``cell`` and its neighbours of the same kind."""
    alike = {c.sequences for c in cells if _without_sequences(c) == _without_sequences(cell)}
    below = max((b for b in alike if b < cell.sequences), default=None)
    above = min((b for b in alike if b > cell.sequences), default=None)
    middles = [(cell.sequences + b) // 2 for b in (below, above) if b is not None]
    return tuple(cell.model_copy(update={"sequences": b}) for b in middles if b not in alike)


def _without_sequences(cell: Cell) -> Cell:
    return cell.model_copy(update={"sequences": 0})


def _as(cell: Cell, name: PassName, width: int, drafter: str) -> Cell:
    return cell.model_copy(update={"pass_": name, "width": width, "drafter": drafter})


def _decode_rows(plan: Plan) -> list[tuple[int, int]]:
    turns = zip(plan.tokens, cycle(FAVOURITES), strict=False)
    return [row for tokens, favourite in turns for row in splits(tokens, favourite)]


def _row(plan: Plan, sequences: int, width: int, context: int, drafter: str, deepest: int) -> Cell:
    """A decode step: a round where some drafter makes this width, else the verify pass alone."""
    is_round = width <= deepest and (width == 1 or drafter != "")
    return Cell.model_validate(
        {
            "pass": "round" if is_round else "verify",
            "sequences": sequences,
            "width": width,
            "context": context,
            "execution": plan.execution,
            "drafter": drafter if is_round and width > 1 else "",
        }
    )


def _contexts(plan: Plan, drafter: str, deepest: int) -> list[Cell]:
    return [
        _row(plan, b, w, context, drafter, deepest)
        for context in plan.contexts
        for b, w in plan.context_rows
        if b * context <= plan.most_kv and b * w <= plan.tokens[-1]
    ]


def _prefill(plan: Plan) -> list[Cell]:
    common = {"execution": plan.execution, "width": 1}
    alone = [
        {
            "pass": "prefill",
            "sequences": 0,
            "context": 0,
            "chunk": chunk,
            "prefix": prefix,
            **common,
            "width": 0,
        }
        for chunk in plan.chunks
        for prefix in plan.prefixes
    ]
    beside = [
        {"pass": "mixed", "sequences": b, "context": plan.context, "chunk": chunk, **common}
        for b, chunk in plan.mixed
    ]
    return [Cell.model_validate(each) for each in (*alone, *beside)]


def _eager(cell: Cell) -> Cell:
    return cell.model_copy(update={"execution": "eager"})


def _further(plan: Plan, rows: Sequence[tuple[int, int]], drafter: str, deepest: int) -> list[Cell]:
    drafted = [(b, w) for b, w in rows if 1 < w <= deepest][::2]
    return [_row(plan, b, w, plan.context, drafter, deepest) for b, w in drafted]


def _anchors(cells: Sequence[Cell]) -> tuple[Cell, ...]:
    """At the base context: the smallest round, a middling and a large one (with drafts, if there are any)."""
    rounds = [c for c in cells if c.pass_ == "round" and c.execution != "eager"]
    base = sorted((c for c in rounds if c.context == cells[0].context), key=lambda c: (c.tokens, c.sequences))
    drafted = [c for c in base if c.width > 1] or base
    picked = (base[0], drafted[len(drafted) // 2], drafted[3 * len(drafted) // 4])
    return tuple(dict.fromkeys(picked))


def _unique(cells: Iterable[Cell]) -> tuple[Cell, ...]:
    return tuple(dict.fromkeys(cells))
