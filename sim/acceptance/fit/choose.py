"""Fit every process that the evidence allows, and choose one by its held-out error.

A simpler process is preferred to one that is better by less than half a percentage point. A
recording is its own best process; the fitted one beside it is for where the file cannot go.

A rate per position, or a Beta rate afresh per round, speaks of the counted depth alone: fitted to
SpecDecode-Bench's counts at one depth of 3, 5, 7 or 10, such processes miss the tokens of the other
depths by up to 57 %, those whose requests or stretches differ by up to 5 %. They are shown, and chosen
only where every other process is far worse at the counted depth itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from sim.acceptance.build import expected_survival
from sim.acceptance.config import (
    AcceptanceConfig,
    Confidence,
    IidAcceptance,
    MeanLengthAcceptance,
    TraceAcceptance,
)
from sim.acceptance.fit import candidates as family
from sim.acceptance.fit.candidates import Candidate
from sim.acceptance.fit.evidence import Counted, Evidence, Quality, Request, pooled
from sim.acceptance.fit.heldout import Check, check_counts, check_recording, check_requests, score
from sim.acceptance.fit.recordings import depths_of, walked
from sim.acceptance.fit.sequences import tested
from sim.acceptance.paths import Runs
from sim.errors import InputError

_MARGIN = 0.005
_FAR = 0.05


@dataclass(frozen=True)
class Fitted:
    """One process fitted to all of the evidence, with what a fit to a part of it gets wrong of the rest."""

    name: str
    parameters: int
    config: AcceptanceConfig
    checks: tuple[Check, ...]
    here_only: bool = False
    """Whether it speaks of the counted depth alone."""

    @property
    def score(self) -> float:
        """Mean absolute held-out error."""
        return score(self.checks)


@dataclass(frozen=True)
class Fit:
    """The chosen process, and all that were tried, simplest first."""

    evidence: Evidence
    chosen: Fitted
    tried: tuple[Fitted, ...]


def fit(evidence: Evidence) -> Fit:
    """Fit the evidence; ``InputError`` where there is too little of it."""
    fits = (replace(each, config=_looked_up(each.config, evidence.in_vain)) for each in _fits(evidence))
    tried = tuple(sorted(fits, key=lambda each: each.parameters))
    if evidence.path is not None:
        return Fit(evidence, tried[-1], tried)
    return Fit(evidence, best_of(tried), tried)


def best_of(tried: Sequence[Fitted]) -> Fitted:
    """The simplest process whose held-out error is no more than the margin above the least."""
    known = [each for each in tried if not np.isnan(each.score)]
    if not known:
        return tried[0]
    elsewhere = [each for each in known if not each.here_only]
    least = min(each.score for each in known)
    if elsewhere and min(each.score for each in elsewhere) <= least + _FAR:
        known, least = elsewhere, min(each.score for each in elsewhere)
    return next(each for each in known if each.score <= least + _MARGIN)


def _fits(evidence: Evidence) -> Iterator[Fitted]:
    if evidence.detail == "mean" and len({g.depth for g in evidence.counted}) == 1:
        yield from _of_mean(evidence.counted)
    elif evidence.detail in ("mean", "counts"):
        yield from _of_counts(evidence.counted)
    elif evidence.runs:
        yield from _of_recording(evidence)
    else:
        yield from _of_requests(evidence.requests, (), ())


def _of_mean(groups: Sequence[Counted]) -> Iterator[Fitted]:
    """One depth: by context if there are several, else the mean alone."""
    if len({group.context_tokens for group in groups}) >= 3:
        for candidate in (family.IID[0], family.FADING):
            yield _counted(candidate.name, candidate.parameters, _refit(candidate), groups)
        return
    whole = pooled(groups)
    config = MeanLengthAcceptance(
        process="mean_length", depth=whole.depth, acceptance_length=whole.tokens_per_round
    )
    yield Fitted("mean_length", 1, config, ())


def _of_counts(groups: Sequence[Counted]) -> Iterator[Fitted]:
    depths = {group.depth for group in groups}
    if depths == {1}:
        yield _counted("iid", 1, lambda some, _: _plain(some), groups)
        return
    for candidate in (*family.IID, family.BETA_PER_REQUEST, *family.MARKOV):
        yield _counted(candidate.name, candidate.parameters, _refit(candidate), groups)
    for candidate in family.BETA:
        found = _counted(candidate.name, candidate.parameters, _refit(candidate), groups)
        yield replace(found, here_only=True)
    if all(group.survival for group in groups):
        yield replace(_counted("per_position", max(depths), _deepest, groups), here_only=True)


def _plain(groups: Sequence[Counted]) -> AcceptanceConfig:
    return IidAcceptance(process="iid", alpha=pooled(groups).tokens_per_round - 1)


def _refit(candidate: Candidate) -> Callable[[Sequence[Counted], int | None], AcceptanceConfig]:
    return lambda groups, positions: family.fit_counts(candidate, groups, positions)


def _deepest(groups: Sequence[Counted], positions: int | None) -> AcceptanceConfig:
    """Counted rates as they are: those of the deepest rounds."""
    deepest = max(group.depth for group in groups)
    return family.per_position(pooled([group for group in groups if group.depth == deepest]), positions)


def _counted(
    name: str,
    parameters: int,
    refit: Callable[[Sequence[Counted], int | None], AcceptanceConfig],
    groups: Sequence[Counted],
) -> Fitted:
    return Fitted(name, parameters, refit(groups, None), tuple(check_counts(refit, groups)))


Requests = Sequence[Request]


def _of_requests(requests: Requests, runs: Sequence[Runs], depths: Sequence[int]) -> Iterator[Fitted]:
    """``requests[i]`` are the rounds that a fit sees, of the recorded ``runs[i]`` if there are any."""
    if len(requests) < 2:
        raise InputError("one request says nothing about others; give at least two")
    for name, parameters, refit in _request_fits(requests):
        config = refit(requests[::2])
        held_out = [walked(run, max(depths)) for run in runs[1::2]] if len(runs) else requests[1::2]
        checks = check_requests(config, held_out, runs[1::2], depths)
        here_only = name in {candidate.name for candidate in family.BETA}
        yield Fitted(name, parameters, refit(requests), tuple(checks), here_only)


RequestFit = tuple[str, int, Callable[[Requests], AcceptanceConfig]]


def _request_fits(requests: Requests) -> Iterator[RequestFit]:
    by_position = all(request.steps for request in requests)
    for candidate in (*family.IID, *family.BETA) if by_position else family.IID[:1]:
        yield candidate.name, candidate.parameters, _on_counts(candidate)
    yield family.BETA_PER_REQUEST.name, family.BETA_PER_REQUEST.parameters, _of_rates
    if all(request.in_order for request in requests):
        for candidate in (*family.MARKOV, *family.LATENT):
            yield candidate.name, candidate.parameters, _on_rounds(candidate)


def _of_rates(requests: Requests) -> AcceptanceConfig:
    return family.levelled(family.fit_requests(requests), _sums(requests))


def _sums(requests: Requests) -> tuple[Counted, ...]:
    return Evidence("", requests=tuple(requests)).by_depth()


def _on_counts(candidate: Candidate) -> Callable[[Requests], AcceptanceConfig]:
    return lambda requests: family.fit_counts(candidate, _sums(requests))


def _on_rounds(candidate: Candidate) -> Callable[[Requests], AcceptanceConfig]:
    return lambda requests: family.levelled(family.fit_rounds(candidate, tested(requests)), _sums(requests))


def _of_recording(evidence: Evidence) -> Iterator[Fitted]:
    """Processes fitted to walks of the recording at several depths in turn, and the recording itself."""
    depths, runs = depths_of(evidence.recorded_depth or 1), evidence.runs
    requests = [walked(run, depths[i // 2 % len(depths)]) for i, run in enumerate(runs)]
    for each in _of_requests(requests, runs, depths):
        yield replace(each, config=_with_claims(each.config, evidence.quality))
    assert evidence.path is not None
    depth = None if evidence.depth_in_rows else evidence.recorded_depth
    config = TraceAcceptance(process="trace", path=evidence.path, recorded_depth=depth)
    yield Fitted("trace", len(runs), config, tuple(check_recording(runs, depths)))


def _with_claims(config: AcceptanceConfig, quality: Quality | None) -> AcceptanceConfig:
    """The process with claims as good as the recorded ones; an error below 2 % is called calibrated."""
    if quality is None or not 0.5 <= quality.auc < 1:
        return config
    off = quality.ece >= 0.02
    direction: Literal["bold", "timid"] = "bold" if quality.bold else "timid"
    claims = Confidence(
        auc=quality.auc, ece=quality.ece if off else None, direction=direction if off else None
    )
    return config.model_copy(update={"confidence": claims})


def _looked_up(config: AcceptanceConfig, in_vain: float | None) -> AcceptanceConfig:
    """The process as a look-up drafter's, where it is one.

    Counts tell in how many rounds it proposed; ``match`` is the share of positions, and rounds skip
    those that are accepted.
    """
    if in_vain is None:
        return config
    accepted = float(expected_survival(config, 1)[0])
    return config.model_copy(update={"match": accepted + in_vain * (1 - accepted)})
