"""What was seen of acceptance, whatever the file said it in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.acceptance.paths import Runs

Floats = NDArray[np.float64]
Detail = Literal["mean", "counts", "requests", "rounds", "positions"]
"""From least to most: means; rates by position; each request; each round in order; every position."""


@dataclass(frozen=True)
class Counted:
    """Rounds of one depth, counted together: a log window, a server's life, a benchmark run.

    ``tokens_per_round`` includes the bonus token. ``survival`` has one entry per draft: the share of
    rounds that accepted at least 1, 2, ... of them; empty where only the mean is known. ``rounds``
    is 0 where no count is given.
    """

    depth: int
    tokens_per_round: float
    survival: tuple[float, ...] = ()
    rounds: float = 0.0
    drafted: float = 0.0
    context_tokens: float | None = None

    @property
    def weight(self) -> float:
        """Rounds, or 1 where they are not known."""
        return self.rounds or 1.0


@dataclass(frozen=True)
class Request:
    """One request's rounds.

    ``steps`` has (drafted, accepted) of each round, empty where only sums are known; ``in_order``
    where they stand in the order in which they happened.
    """

    depth: int
    rounds: int
    accepted: int
    steps: tuple[tuple[int, int], ...] = ()
    in_order: bool = False

    @property
    def tokens(self) -> int:
        """Output tokens of the rounds, bonus tokens included."""
        return self.rounds + self.accepted

    @property
    def tokens_per_round(self) -> float:
        """Mean over its rounds."""
        return self.tokens / self.rounds


class Quality(NamedTuple):
    """Recorded claims: how well they rank drafts, how far they err, and which way."""

    auc: float
    ece: float
    bold: bool


@dataclass(frozen=True)
class Evidence:
    """Everything that the files of one call say.

    ``format`` names their kind; ``runs`` are recorded run lengths by output position, and ``path``
    the recording that holds them, whose rows may state its depth, or need none; ``quality`` is that
    of recorded claims; ``in_vain`` the share of rounds with nothing acceptable in which a look-up
    drafter proposed all the same; ``notes`` say what was taken for granted in reading.
    """

    format: str
    counted: tuple[Counted, ...] = ()
    requests: tuple[Request, ...] = ()
    runs: tuple[Runs, ...] = ()
    recorded_depth: int | None = None
    depth_in_rows: bool = False
    path: str | None = None
    quality: Quality | None = None
    in_vain: float | None = None
    notes: tuple[str, ...] = ()

    @property
    def detail(self) -> Detail:
        """The most that it tells."""
        if self.runs:
            return "positions"
        if self.requests:
            return "rounds" if all(request.in_order for request in self.requests) else "requests"
        return "counts" if any(group.survival for group in self.counted) else "mean"

    @property
    def depths(self) -> tuple[int, ...]:
        """Depths at which rounds were counted, rising."""
        return tuple(sorted({group.depth for group in self.counted} | {r.depth for r in self.requests}))

    def by_depth(self) -> tuple[Counted, ...]:
        """Rounds of each depth, summed."""
        groups = [*self.counted, *(counted(request) for request in self.requests)]
        return tuple(pooled([g for g in groups if g.depth == depth]) for depth in self.depths)


def pooled(groups: Sequence[Counted]) -> Counted:
    """Rounds of one depth together, weighted by their number."""
    weight = np.array([group.weight for group in groups])
    share = weight / weight.sum()
    known = all(group.survival for group in groups)
    survival = share @ np.array([group.survival for group in groups]) if known else np.empty(0)
    return Counted(
        depth=groups[0].depth,
        tokens_per_round=float(share @ [group.tokens_per_round for group in groups]),
        survival=tuple(survival.tolist()),
        rounds=sum(group.rounds for group in groups),
        drafted=sum(group.drafted for group in groups),
        context_tokens=groups[0].context_tokens,
    )


def counted(request: Request) -> Counted:
    """One request as counts."""
    survival = survival_of([accepted for _, accepted in request.steps], request.depth)
    drafted = float(sum(made for made, _ in request.steps))
    return Counted(request.depth, request.tokens_per_round, survival, request.rounds, drafted)


def survival_of(accepted: Iterable[int], depth: int) -> tuple[float, ...]:
    """Share of rounds that accepted at least 1, 2, ... ``depth`` drafts; empty without rounds."""
    counts = np.bincount(np.fromiter(accepted, dtype=np.int64), minlength=depth + 1)
    if not counts.sum():
        return ()
    return tuple((counts[::-1].cumsum()[-2::-1] / counts.sum()).tolist())
