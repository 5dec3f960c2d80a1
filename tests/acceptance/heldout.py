"""How well each process, fitted to one half of recorded requests, predicts the other half.

Fits see what an engine logs in detail at depth 4: drafted and accepted of every round, in order. The
trace itself is the sixth process: it replays the first half's rows. Both halves take their turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sim.acceptance.base import AcceptanceProcess
from sim.acceptance.build import build_process
from sim.acceptance.config import AcceptanceConfig
from sim.acceptance.fit import candidates
from sim.acceptance.fit.evidence import Request, counted, pooled
from sim.acceptance.fit.recordings import walked
from sim.acceptance.fit.sequences import tested
from sim.acceptance.replay import TraceProcess, tokens_per_round
from sim.acceptance.survey import walk
from sim.acceptance.trace import Row, read_trace
from sim.acceptance.trees import Siblings
from sim.scenario import catalogue

Floats = NDArray[np.float64]

TRACES: Final = {
    "greedy": "byte-pair-greedy",
    "T = 0.7": "byte-pair-t0.7",
    "T = 1": "byte-pair-t1",
}
DEPTHS: Final = (1, 2, 4, 8)
LOGGED: Final = 4
PROCESSES: Final = ("iid", "beta", "markov", "latent", "trace")
DRAWN: Final = 2048
"""Requests drawn from a process for its spread: the error of a standard deviation is 2 %."""

LUCKS: Final = 8
"""Replays of the half that is predicted, each with luck of its own."""


@dataclass(frozen=True)
class Summary:
    """Tokens per round: over all requests by depth, and how requests of one output spread at depth 4."""

    mean: Floats
    sd: float
    p5: float
    p95: float


def halves(name: str) -> tuple[list[Row], list[Row]]:
    """Even and odd requests of a shipped trace."""
    rows = read_trace(catalogue.locate("acceptance", name, Path()))
    return rows[::2], rows[1::2]


def replay(rows: Sequence[Row], seed: int, in_order: bool) -> TraceProcess:
    """Rows as a process."""
    siblings = Siblings(None, lambda: np.ones(DEPTHS[-1]))
    return TraceProcess(
        seed, DEPTHS[-1], rows, in_order, None, None, partial(tokens_per_round, rows), siblings
    )


def fitted(process: str, rows: Sequence[Row]) -> AcceptanceProcess:
    """The process that ``rows``, logged once at depth 4, speak for."""
    if process == "trace":
        return replay(rows, 1, in_order=False)
    return build_process(fit(process, logged(rows)), 1, DEPTHS[-1], Path)


def logged(rows: Sequence[Row]) -> list[Request]:
    """What an engine logs of one generation per row at depth 4."""
    process = replay(rows, 2, in_order=True)
    return [walked(process.path(i, 1, row.positions).run, LOGGED) for i, row in enumerate(rows)]


def fit(process: str, requests: Sequence[Request]) -> AcceptanceConfig:
    """One of the four parametric processes without depth decay, by maximum likelihood; iid by counts."""
    if process == "iid":
        return candidates.fit_counts(candidates.IID[0], [pooled([counted(each) for each in requests])])
    if process == "beta":
        return candidates.fit_requests(requests)
    family = {"markov": candidates.MARKOV, "latent": candidates.LATENT}[process][0]
    return candidates.fit_rounds(family, tested(requests))


def predicted(process: AcceptanceProcess, output_tokens: int) -> Summary:
    """Means as the process states them, spread from drawn requests."""
    means = [process.expected_tokens_per_round(depth) for depth in DEPTHS]
    return _summary(means, per_request(process, DRAWN, output_tokens))


def seen(rows: Sequence[Row]) -> Summary:
    """Means of the rows, exact over luck, and the spread of their replays."""
    spread = [per_request(replay(rows, seed, True), len(rows), rows[0].positions) for seed in range(LUCKS)]
    return _summary([tokens_per_round(rows, depth) for depth in DEPTHS], np.concatenate(spread))


def per_request(process: AcceptanceProcess, requests: int, output_tokens: int) -> Floats:
    """Tokens per round of each request at depth 4."""
    walks = (walk(process.path(i, 1, output_tokens).run, LOGGED) for i in range(requests))
    return np.array([tokens / rounds for tokens, rounds in walks])


def _summary(means: Sequence[float], spread: Floats) -> Summary:
    p5, p95 = np.quantile(spread, [0.05, 0.95])
    return Summary(np.array(means), float(spread.std()), float(p5), float(p95))


@dataclass(frozen=True)
class Errors:
    """Relative errors of a prediction, the mean over both turns: what is left is bias, not sampling.

    ``worst_mean`` is the largest error of any mean in either turn.
    """

    mean: Floats
    sd: float
    p5: float
    p95: float
    worst_mean: float


def study(name: str, process: str) -> Errors:
    """Fit on each half of a shipped trace and predict the other."""
    first, second = halves(name)
    turns = [
        _errors(predicted(fitted(process, known), known[0].positions), seen(unknown))
        for known, unknown in ((first, second), (second, first))
    ]
    worst = max(float(np.abs(turn.mean).max()) for turn in turns)
    mean = np.mean([turn.mean for turn in turns], axis=0)
    sd, p5, p95 = np.mean([(turn.sd, turn.p5, turn.p95) for turn in turns], axis=0).tolist()
    return Errors(mean, sd, p5, p95, worst)


def _errors(told: Summary, true: Summary) -> Summary:
    return Summary(
        told.mean / true.mean - 1, told.sd / true.sd - 1, told.p5 / true.p5 - 1, told.p95 / true.p95 - 1
    )
