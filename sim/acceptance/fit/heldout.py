"""How far a fitted process is off on what it has not seen.

Requests: fitted on every other one, it generates the rest, each as long as it was, at the depths
that were drafted. Counts: fitted on all depths but one it predicts that one, fitted on every other
window the other windows, and fitted on the first half of the positions the tokens of whole rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sim.acceptance.build import build_process, expected_survival
from sim.acceptance.config import AcceptanceConfig
from sim.acceptance.fit.candidates import survival_at
from sim.acceptance.fit.evidence import Counted, Request, pooled
from sim.acceptance.fit.recordings import walked
from sim.acceptance.paths import Runs
from sim.acceptance.survey import rounds, walk

_SEED = -2  # no run has it
_REQUESTS = 400  # generations beside which those held out are laid, at least
_TOKENS = 200_000  # and their tokens, at most

Floats = NDArray[np.float64]
Refit = Callable[[Sequence[Counted], int | None], AcceptanceConfig]


@dataclass(frozen=True)
class Check:
    """One number that was held out, and what the fitted process says it is.

    ``counts``: whether it is among those by which processes are compared. ``held_out`` is false where
    too little was there to hold any out, and the fit has seen the number.
    """

    what: str
    observed: float
    predicted: float
    counts: bool = True
    held_out: bool = True

    @property
    def error(self) -> float:
        """Relative error of the prediction."""
        return self.predicted / self.observed - 1 if self.observed else np.nan


def score(checks: Sequence[Check]) -> float:
    """Mean absolute error of those checks that count; NaN without any."""
    errors = [abs(check.error) for check in checks if check.counts]
    return float(np.mean(errors)) if errors else float("nan")


# -- counts ----------------------------------------------------------------------------------------


def check_counts(refit: Refit, groups: Sequence[Counted]) -> list[Check]:
    """What ``refit`` to a part of the counts says about the rest."""
    keys = sorted({_key(group) for group in groups})
    if len(keys) > 1:
        wholes = [pooled([group for group in groups if _key(group) == key]) for key in keys]
        return [_left_out(refit, wholes, i) for i in range(len(wholes))]
    whole = pooled(groups)
    return [*_other_windows(refit, groups), *_later_positions(refit, whole)] or _fitted(refit, whole)


def _key(group: Counted) -> tuple[int, float]:
    return group.depth, group.context_tokens or 0.0


def _tokens(config: AcceptanceConfig, group: Counted) -> float:
    return float(1 + survival_at(config, group.depth, group.context_tokens).sum())


def _left_out(refit: Refit, wholes: list[Counted], i: int) -> Check:
    own = wholes[i]
    config = refit(wholes[:i] + wholes[i + 1 :], None)
    at = f" at {own.context_tokens:g} tokens" if own.context_tokens is not None else ""
    return Check(f"tokens/round k={own.depth}{at}", own.tokens_per_round, _tokens(config, own))


def _other_windows(refit: Refit, groups: Sequence[Counted]) -> list[Check]:
    if len(groups) < 2:
        return []
    rest = pooled(groups[1::2])
    config = refit([pooled(groups[::2])], None)
    return [Check("tokens/round, other windows", rest.tokens_per_round, _tokens(config, rest))]


def _later_positions(refit: Refit, whole: Counted) -> list[Check]:
    half = max(2, -(-whole.depth // 2))
    if half >= len(whole.survival):
        return []
    config = refit([whole], half)
    return [Check(f"tokens/round from positions 1-{half}", whole.tokens_per_round, _tokens(config, whole))]


def _fitted(refit: Refit, whole: Counted) -> list[Check]:
    """Too few numbers to hold one out: the rates as fitted."""
    survival = expected_survival(refit([whole], None), whole.depth)
    pairs = enumerate(zip(whole.survival, survival.tolist(), strict=True), start=1)
    return [Check(f"rate {i}", seen, said, held_out=False) for i, (seen, said) in pairs]


# -- requests --------------------------------------------------------------------------------------


def check_requests(
    config: AcceptanceConfig, requests: Sequence[Request], runs: Sequence[Runs], depths: Sequence[int]
) -> list[Check]:
    """Generate requests like those held out, and compare both; ``runs`` are recorded ones, if any."""
    depth = max(request.depth for request in requests)
    generated = _generate(config, [request.tokens for request in requests], depth)
    repeated = [requests[i % len(requests)] for i in range(len(generated))]
    ours = [_as_drafted(run, like) for run, like in zip(generated, repeated, strict=True)]
    spread = _spread(requests, ours)
    if runs:
        return [*(_walked(runs, generated, each) for each in depths), *spread]
    return [_mean(f"tokens/round k={depth}", _lengths(requests), _each(ours)), *spread]


def check_recording(runs: Sequence[Runs], depths: Sequence[int]) -> list[Check]:
    """Every other recorded request beside the rest: how far halves of the recording differ."""
    ours, theirs = runs[::2], runs[1::2]
    spread = _spread([walked(run, depths[-1]) for run in theirs], [rounds(run, depths[-1]) for run in ours])
    return [*(_walked(theirs, ours, depth) for depth in depths), *spread]


def _generate(config: AcceptanceConfig, tokens: Sequence[int], depth: int) -> list[Runs]:
    """Runs of requests of these lengths, again and again until there are enough."""
    process = build_process(config, _SEED, depth, Path)
    copies = max(1, min(-(-_REQUESTS // len(tokens)), _TOKENS // max(1, sum(tokens))))
    return [process.path(i, 1, tokens[i % len(tokens)]).run for i in range(copies * len(tokens))]


def _as_drafted(run: Runs, like: Request) -> list[int]:
    """Accepted drafts of each round at the depths that ``like`` drafted, one after the other."""
    depths = [drafted for drafted, _ in like.steps] or [like.depth]
    position, accepted = 0, list[int]()
    while position < len(run):
        accepted.append(min(int(run[position]), depths[len(accepted) % len(depths)]))
        position += accepted[-1] + 1
    return accepted


Lengths = list[tuple[int, int]]
"""Tokens and rounds of each request."""


def _lengths(requests: Sequence[Request]) -> Lengths:
    return [(request.tokens, request.rounds) for request in requests]


def _each(accepted: Sequence[Sequence[int]]) -> Lengths:
    return [(sum(one) + len(one), len(one)) for one in accepted]


def _ratio(lengths: Lengths) -> float:
    tokens, rounds = np.array(lengths, dtype=np.float64).sum(axis=0)
    return float(tokens / rounds)


def _mean(what: str, observed: Lengths, predicted: Lengths) -> Check:
    return Check(what, _ratio(observed), _ratio(predicted))


def _walked(observed: Sequence[Runs], predicted: Sequence[Runs], depth: int) -> Check:
    theirs, ours = ([walk(run, depth) for run in each] for each in (observed, predicted))
    return _mean(f"tokens/round k={depth}", theirs, ours)


def _spread(observed: Sequence[Request], predicted: Sequence[Sequence[int]]) -> list[Check]:
    """Tails and deviation of tokens per round over requests, and correlation within them."""
    theirs, ours = (
        np.array([tokens / rounds for tokens, rounds in each])
        for each in (_lengths(observed), _each(predicted))
    )
    checks = [
        *(_tail(theirs, ours, q) for q in (5, 95)),
        Check("deviation over requests", float(theirs.std()), float(ours.std()), counts=False),
    ]
    if all(request.in_order for request in observed):
        seen = [[accepted for _, accepted in request.steps] for request in observed]
        checks.append(Check("lag-1 correlation", lagged(seen, 1), lagged(predicted, 1), counts=False))
    return checks


def _tail(observed: Floats, predicted: Floats, q: int) -> Check:
    return Check(f"request p{q}", float(np.percentile(observed, q)), float(np.percentile(predicted, q)))


def lagged(accepted: Sequence[Sequence[int]], lag: int) -> float:
    """Correlation of accepted drafts ``lag`` rounds apart within requests, each about its own mean."""
    product, square = 0.0, 0.0
    for one in accepted:
        if len(one) > lag + 5:
            off = np.array(one) - np.mean(one)
            product += float(off[lag:] @ off[:-lag])
            square += float(off @ off) * (len(off) - lag) / len(off)
    return product / square if square else float("nan")
