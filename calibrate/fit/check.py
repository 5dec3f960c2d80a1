"""Whether a profile may be used: what refuses it, and what its user has to know."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from calibrate.cells import Cell
from calibrate.compose.evaluate import pass_ns
from calibrate.fit.cells import UNUSABLE
from calibrate.fit.report import FitReport, Spread
from calibrate.grid import DEEPEST
from calibrate.profile import Profile

WORST_P90: Final = 15.0
"""Percent: a 90th percentile of the leave-one-out error above this refuses the profile."""

WORST_DRIFT: Final = 3.0
WORST_ROUND: Final = 5.0
FEWEST_CELLS: Final = 8
UNKNOWN_NOISE: Final = Spread(mean=1.0, p90=1.0, max=1.0, count=1)


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong (``refused``) or worth knowing (``warning``), at a field of the profile."""

    level: Literal["refused", "warning"]
    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.level}: {self.field}: {self.message}"


def check(profile: Profile) -> tuple[Finding, ...]:
    """What refuses this profile; empty when it may be used."""
    return tuple(finding for finding in check_profile(profile) if finding.level == "refused")


def check_profile(profile: Profile, sampling: str | None = None) -> tuple[Finding, ...]:
    """Everything found, refusals first. ``sampling`` is the mode of the run that would use the profile."""
    found = [
        *_sampling(profile, sampling),
        *_errors(profile),
        *_flat(profile),
        *_rounds(profile),
        *_domain(profile),
    ]
    return tuple(sorted(found, key=lambda finding: finding.level != "refused"))


def _refused(field: str, message: str) -> Finding:
    return Finding("refused", field, message)


def _warning(field: str, message: str) -> Finding:
    return Finding("warning", field, message)


def _sampling(profile: Profile, sampling: str | None) -> Iterator[Finding]:
    if sampling is not None and sampling != profile.sampling:
        yield _warning(
            "sampling",
            f"measured with {profile.sampling}, used for {sampling}: accept and drafts take other times",
        )


def _errors(profile: Profile) -> Iterator[Finding]:
    if profile.kind == "measured" and "verify" not in profile.fit:
        yield _warning("fit", "no held-out error: its cells were not measured by `leadline calibrate`")
    for name, report in profile.fit.items():
        if name != "round":
            yield from _held_out(name, report)
    yield from _drift(profile)


def _held_out(name: str, report: FitReport) -> Iterator[Finding]:
    field, error = f"fit.{name}", report.leave_one_out
    grave = _warning if name in ("accept", "host") else _refused
    if report.cells < FEWEST_CELLS and name == "verify":
        yield _refused(field, f"{report.cells} cells cannot tell its error; measure at least {FEWEST_CELLS}")
    elif error and error.p90 > WORST_P90:
        yield grave(
            field,
            f"p90 leave-one-out error {error.p90:.1f} % is over {WORST_P90:g} %, worst at {report.worst}; "
            "measure more cells there, or on a quieter machine",
        )
    for other, what in ((report.leave_sequences_out, "batch sizes"), (report.leave_context_out, "contexts")):
        if other and other.p90 > WORST_P90:
            yield _warning(field, f"predicts {what} that were not measured with p90 error {other.p90:.1f} %")
    if report.excluded:
        yield _warning(field, f"{report.excluded} cells left out: out of memory or throttled")


def _drift(profile: Profile) -> Iterator[Finding]:
    report = profile.fit.get("verify")
    if report is None:
        return
    if report.drift_percent is None:
        yield _warning("fit.verify.drift_percent", "no cell was repeated, so drift is not known")
    elif report.drift_percent > WORST_DRIFT:
        yield _refused(
            "fit.verify.drift_percent",
            f"repeated cells drifted by {report.drift_percent:.1f} %, over {WORST_DRIFT:g} %: the machine "
            "changed while it was measured; let it warm up, stop other work, and measure again",
        )


def _flat(profile: Profile) -> Iterator[Finding]:
    """A verify pass that costs the same at every depth would make any policy draft without bound.

    Told by the largest decode step that was measured at a width that rounds have.
    """
    report = profile.fit.get("verify")
    if report is None:
        return
    deep_cells = [
        (cell.tokens, cell.width)
        for cell in (one.cell for one in profile.cells if not UNUSABLE & set(one.flags))
        if cell.pass_ == "verify" and 1 < cell.width <= DEEPEST and cell.sequences
    ]
    tokens, wide = max(deep_cells, default=(0, 1))
    sequences, depth = tokens // wide, wide - 1
    if not deep_cells:
        yield _warning(
            "target.verify", f"no cell is 2 to {DEEPEST} tokens wide: the cost of depth was not measured"
        )
        return
    deep, plain = (_verify_ns(profile, report, sequences, width) for width in (wide, 1))
    noise = report.noise or UNKNOWN_NOISE
    if deep <= plain * (1 + noise.p90 / 100):
        yield _refused(
            "target.verify",
            f"is flat: {sequences} sequences take {deep / 1e6:.4g} ms at depth {depth} and "
            f"{plain / 1e6:.4g} ms at depth 0, within noise ({noise.p90:.1f} %); measure larger cells",
        )


def _verify_ns(profile: Profile, report: FitReport, sequences: int, width: int) -> float:
    context = int(report.domain["context"].lowest)
    cell = Cell.model_validate({"pass": "verify", "sequences": sequences, "width": width, "context": context})
    return pass_ns(profile.target.verify, cell.shape)


def _rounds(profile: Profile) -> Iterator[Finding]:
    report = profile.fit.get("round")
    error = report.in_sample if report else None
    if error and error.mean > WORST_ROUND:
        yield _warning(
            "fit.round",
            f"the sum of parts and host misses whole rounds by {error.mean:.1f} % on average, "
            f"over {WORST_ROUND:g} %",
        )
    if profile.fit and report is None:
        yield _warning("fit.round", "no whole round was timed, so the sum of parts is not checked")


def _domain(profile: Profile) -> Iterator[Finding]:
    report = profile.fit.get("verify")
    if report and report.domain["context"].lowest == report.domain["context"].highest:
        yield _warning("fit.verify.domain", "one context only: what longer contexts cost was not measured")
    for part in ("accept", "host"):
        if profile.fit and part not in profile.fit:
            yield _warning(f"target.{part}", "was not measured and costs nothing here")
