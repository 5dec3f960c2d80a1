"""A campaign's cells as one profile: every pass fitted, the whole round checked, everything kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from calibrate.cells import Cell, Execution, Measured
from calibrate.compose.evaluate import pass_ns
from calibrate.fit.cells import FORWARD, UNUSABLE, FitError, describe, shape_of
from calibrate.fit.check import check
from calibrate.fit.errors import drift, spread
from calibrate.fit.passes import PassFit, fit_pass
from calibrate.fit.report import FitReport, Machine, Method
from calibrate.profile import (
    SCHEMA,
    Assumption,
    Curve,
    Device,
    Drafter,
    DrafterKind,
    ModelWork,
    Profile,
    StatedError,
    Target,
    Term,
)


@dataclass(frozen=True)
class CampaignAbout:
    """What a campaign says about itself: the provenance of every number in its profile."""

    name: str
    created: str
    command: str
    device: Device
    dtype: str
    method: Method
    machine: Machine = field(default_factory=Machine)
    notes: str = ""


@dataclass(frozen=True)
class DrafterAbout:
    """A drafter that was timed: what kind it is, its work, and the depth it was built for.

    ``block_tokens`` of a parallel one is the block it drafts, 0 for the widest that was measured.
    """

    kind: DrafterKind
    work: ModelWork | None = None
    max_depth: int = 16
    block_tokens: int = 0


Fits = dict[str, PassFit]
"""``verify``, ``accept``, ``host``; ``NAME.first`` and ``NAME.next`` of each drafter."""

_PASSES: Final = {"draft_first": "first", "draft_block": "first", "draft_next": "next"}


def make_profile(
    measured: Sequence[Measured],
    about: CampaignAbout,
    work: ModelWork,
    drafters: Mapping[str, DrafterAbout] | None = None,
) -> Profile:
    """The sealed profile of kind ``measured``; raises ``FitError`` where there is no verify cell.

    What ``calibrate.fit.check`` refuses it for is kept in ``refused``, so that no measurement is lost. A
    drafter without cells is left out and named in the notes. Passes are fitted in the execution
    that most verify cells ran in; what eager ones take beyond that becomes ``eager_extra``.
    """
    execution = _main_execution(measured)
    fits = _fits([one for one in measured if one.cell.execution == execution])
    known = drafters or {}
    timed = {name: d for name, d in known.items() if d.kind == "ngram" or f"{name}.first" in fits}
    parts = {name: _drafter(drafter, name, fits) for name, drafter in timed.items()}
    target = _target(work, fits, _eager_extra(measured, fits["verify"]) if execution != "eager" else ())
    reports = _reports(measured, fits, target, parts)
    left_out = [
        f"Drafter {name} has no measured pass and is left out." for name in known if name not in timed
    ]
    profile = Profile(
        schema=SCHEMA,
        name=about.name,
        kind="measured",
        created=about.created,
        command=about.command,
        device=about.device,
        dtype=about.dtype,
        execution=execution,
        sampling=about.method.sampling,
        max_tokens=max(1, *(cell.tokens for cell in fits["verify"].table.cells)),
        target=target,
        drafters=parts,
        error=_stated(reports),
        assumptions=_assumptions(parts),
        method=about.method,
        machine=about.machine,
        fit=reports,
        cells=tuple(measured),
        notes=" ".join(filter(None, [about.notes, *left_out])),
    )
    refused = tuple(f"{finding.field}: {finding.message}" for finding in check(profile))
    return profile.model_copy(update={"refused": refused}).sealed()


def _main_execution(measured: Sequence[Measured]) -> Execution:
    regimes = [one.cell.execution for one in measured if one.cell.pass_ == "verify"]
    if not regimes:
        raise FitError(
            "no verify cell was measured; a profile needs at least one, and eight to state its error"
        )
    return max(dict.fromkeys(regimes), key=regimes.count)


def _fits(measured: Sequence[Measured]) -> Fits:
    groups: dict[str, list[Measured]] = {}
    for one in measured:
        key = _pass_key(one.cell)
        if key and not UNUSABLE & set(one.flags):
            groups.setdefault(key, []).append(one)
    if "verify" not in groups:
        raise FitError(
            "every verify cell ran out of memory or was throttled; measure smaller cells, or cooler"
        )
    return {key: fit_pass(cells, _TITLES.get(key)) for key, cells in groups.items()}


_TITLES: Final = {"verify": "forward", "accept": "accept", "host": "host"}


def _pass_key(cell: Cell) -> str:
    """Which fit a cell belongs to; "" for none (whole rounds and collectives are kept as they are)."""
    if cell.pass_ in FORWARD:
        return "verify"
    if cell.pass_ in _PASSES:
        return f"{cell.drafter}.{_PASSES[cell.pass_]}"
    return cell.pass_ if cell.pass_ in ("accept", "host") else ""


def _terms(fits: Fits, key: str) -> tuple[Term, ...]:
    return fits[key].terms_fit if key in fits else ()


def _target(work: ModelWork, fits: Fits, eager_extra: tuple[Term, ...]) -> Target:
    return Target(
        work=work,
        verify=fits["verify"].terms_fit,
        exact=fits["verify"].terms_exact,
        accept=_terms(fits, "accept"),
        host=_terms(fits, "host"),
        eager_extra=eager_extra,
    )


def _drafter(about: DrafterAbout, name: str, fits: Fits) -> Drafter:
    """A drafter of its passes; one whose further passes were not timed goes no deeper than 1."""
    parts = [part for part in ("first", "next") if f"{name}.{part}" in fits]
    single = "next" not in parts and about.kind not in ("parallel", "ngram")
    block = _block_tokens(about, name, fits)
    depth = min(about.max_depth, block - 1) if block > 1 else about.max_depth
    data: dict[str, Any] = {
        "kind": about.kind,
        "work": about.work,
        "exact": {part: fits[f"{name}.{part}"].terms_exact for part in parts},
        "block_tokens": block,
        "max_depth": 1 if single else depth,
    }
    return Drafter(**data, **{part: fits[f"{name}.{part}"].terms_fit for part in parts})


def _block_tokens(about: DrafterAbout, name: str, fits: Fits) -> int:
    """Tokens per row of a parallel drafter's block (the last token and its drafts); 0 for other kinds."""
    if about.kind != "parallel":
        return 0
    return about.block_tokens or max(cell.width for cell in fits[f"{name}.first"].table.cells)


def _assumptions(drafters: Mapping[str, Drafter]) -> tuple[Assumption, ...]:
    """What the cells of the drafters leave open."""
    found = [
        Assumption(
            what=f"drafters.{name}: block",
            value=f"always {drafter.block_tokens} tokens per sequence; each costs as much as a fresh token",
            why="cells have as many fresh tokens as block tokens, so the two are not told apart",
        )
        for name, drafter in drafters.items()
        if drafter.block_tokens
    ]
    modelled = [name for name, drafter in drafters.items() if drafter.kind != "ngram"]
    if modelled:
        prefill = Assumption(
            what="drafter prefill attention",
            value="none",
            why=f"not measured ({', '.join(modelled)}): no draft cell has a prompt chunk",
        )
        found.append(prefill)
    return tuple(found)


def _eager_extra(measured: Sequence[Measured], verify: PassFit) -> tuple[Term, ...]:
    """What eager verify passes take beyond captured ones: medians by tokens, straight in between.

    Beyond the last one it stays as it is: launches do not grow with tokens.
    """
    beyond: dict[int, list[float]] = {}
    for one in measured:
        if one.cell.execution == "eager" and one.cell.pass_ == "verify" and not UNUSABLE & set(one.flags):
            extra = 1e3 * one.median_us - pass_ns(verify.terms_fit, one.cell.shape)
            beyond.setdefault(one.cell.tokens, []).append(max(0.0, extra))
    if not beyond:
        return ()
    x = sorted(beyond)
    ns = [float(f"{np.median(beyond[at]):.7g}") for at in x]
    curve = Curve(x=(*x, x[-1] + 1), ns=(*ns, ns[-1]))
    source = f"{sum(map(len, beyond.values()))} eager cells measured here, beyond the captured fit"
    return (Term(name="eager", mark="measured", source=source, curve=curve),)


def _reports(
    measured: Sequence[Measured], fits: Fits, target: Target, drafters: Mapping[str, Drafter]
) -> dict[str, FitReport]:
    """Each pass's report, the campaign's own drift with ``verify``, and ``round`` where rounds were timed."""
    reports = {key: fit.report for key, fit in fits.items()}
    excluded = sum(bool(UNUSABLE & set(one.flags)) for one in measured)
    whole = [one for one in measured if one.cell.pass_ == "round"]
    update = {"drift_percent": drift(whole or measured), "excluded": excluded}
    reports["verify"] = reports["verify"].model_copy(update=update)
    execution = fits["verify"].table.cells[0].execution
    rounds = [one for one in measured if one.cell.pass_ == "round" and one.cell.execution == execution]
    checked = _whole_rounds(rounds, target, drafters)
    return {**reports, "round": checked} if checked else reports


def _whole_rounds(
    rounds: Sequence[Measured], target: Target, drafters: Mapping[str, Drafter]
) -> FitReport | None:
    """Measured whole rounds against the sum of their fitted parts and the host."""
    known = [one for one in rounds if one.cell.drafter in ("", *drafters) and not UNUSABLE & set(one.flags)]
    if not known:
        return None
    errors = [
        abs(round_ns(one.cell, target, drafters.get(one.cell.drafter)) / (1e3 * one.median_us) - 1)
        for one in known
    ]
    worst = int(np.argmax(errors))
    return FitReport(
        cells=len(known),
        in_sample=spread(errors),
        worst=f"{describe(known[worst].cell)} ({100 * errors[worst]:.3g} % off)",
    )


def round_ns(cell: Cell, target: Target, drafter: Drafter | None) -> float:
    """A whole decode round of ``cell``: drafts for depth width - 1, verify, accept, host."""
    total = pass_ns((*target.verify, *target.accept, *target.host), cell.shape)
    if drafter is None or cell.width < 2:
        return total
    further = cell.model_copy(update={"width": 1}).shape
    first = cell.model_copy(update={"pass_": "draft_block"}) if drafter.kind == "parallel" else cell
    return total + pass_ns(drafter.first, shape_of(first)) + (cell.width - 2) * pass_ns(drafter.next, further)


def _stated(reports: Mapping[str, FitReport]) -> StatedError | None:
    """The larger of the mean held-out error of verify and the mean error of whole rounds."""
    left_out = reports["verify"].leave_one_out
    whole = reports["round"].in_sample if "round" in reports else None
    found = [one for one in (left_out, whole) if one]
    if not found:
        return None
    basis = f"verify cells left out one by one: {left_out}" if left_out else "verify: too few cells to tell"
    basis += f"; whole rounds against the sum of their parts: {whole}" if whole else ""
    return StatedError(relative=min(0.99, max(one.mean for one in found) / 100), basis=basis)
