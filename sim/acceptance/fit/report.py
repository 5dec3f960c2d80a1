"""A fit for people, and the same as plain data."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from math import isnan
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from sim.acceptance.config import AcceptanceConfig, TraceAcceptance
from sim.acceptance.fit.choose import Fit, Fitted, best_of
from sim.acceptance.fit.evidence import Evidence
from sim.acceptance.fit.heldout import Check
from sim.acceptance.fit.limits import cannot_tell, not_alpha

_DIGITS = 4
_MOST = 5
_MEANS = "tokens/round k="
_LAST = ("depth_decay", "decay", "confidence", "match")  # what every process takes


def section(config: AcceptanceConfig) -> dict[str, Any]:
    """What to write under ``acceptance:``, numbers to four significant digits."""
    data = config.model_dump(exclude_defaults=True, mode="json")
    order = sorted(data, key=lambda key: (key != "process", key in _LAST))
    return {key: _rounded(data[key]) for key in order}


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}")
    if isinstance(value, list | tuple):
        return [_rounded(each) for each in value]
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items() if each is not None}
    return value


def block(config: AcceptanceConfig) -> str:
    """The YAML block ``acceptance:``, ready to paste."""
    lines = [
        f"  {key}: {value if isinstance(value, str) else json.dumps(value)}"
        for key, value in _written(config)
    ]
    return "\n".join(["acceptance:", *lines])


def _written(config: AcceptanceConfig) -> Iterator[tuple[str, Any]]:
    for key, value in section(config).items():
        yield key, json.dumps(value) if key == "path" else value


def as_data(found: Fit) -> dict[str, Any]:
    """Everything that the report says, as JSON."""
    return {
        "acceptance": section(found.chosen.config),
        "process": found.chosen.name,
        "held_out_error": _number(found.chosen.score),
        "evidence": _seen(found.evidence),
        "tried": [_tried(each) for each in found.tried],
        "cannot_tell": list(cannot_tell(found.evidence)),
        "notes": list(found.evidence.notes),
    }


def _seen(evidence: Evidence) -> dict[str, Any]:
    return {
        "format": evidence.format,
        "detail": evidence.detail,
        "tokens_per_round": {
            str(group.depth): round(group.tokens_per_round, 4) for group in evidence.by_depth()
        },
        "requests": len(evidence.requests) or len(evidence.runs),
        "rounds": round(sum(group.rounds for group in evidence.by_depth())),
    }


def _tried(each: Fitted) -> dict[str, Any]:
    checks = [
        {"what": c.what, "observed": _number(c.observed), "predicted": _number(c.predicted)}
        for c in each.checks
    ]
    return {
        "process": each.name,
        "parameters": each.parameters,
        "acceptance": section(each.config),
        "held_out_error": _number(each.score),
        "checks": checks,
    }


def _number(value: float) -> float | None:
    return None if isnan(value) else round(value, 5)


# -- for people ------------------------------------------------------------------------------------


def render(found: Fit) -> RenderableType:
    """The whole report."""
    parts: list[RenderableType] = [_heading(found.evidence)]
    parts += [Text(f"note: {note}", style="dim") for note in found.evidence.notes]
    warning = not_alpha(found.evidence)
    parts += [Text(warning)] if warning else []
    parts += ["", _choice(found), "", Text(block(found.chosen.config), style="bold")]
    parts += _beside(found)
    if any(each.checks for each in found.tried):
        parts += ["", _table(found)]
    parts += ["", Text("What these data cannot tell")]
    parts += [Text(f"- {sentence}") for sentence in cannot_tell(found.evidence)]
    return Group(*parts)


def _heading(evidence: Evidence) -> Text:
    seen = {
        "mean": f"{len(evidence.counted)} mean acceptance length(s)",
        "counts": f"rates by position, {len(evidence.counted)} window(s)",
        "requests": f"{len(evidence.requests)} requests",
        "rounds": f"{len(evidence.requests)} requests, round by round",
        "positions": f"{len(evidence.runs)} requests at every output position",
    }[evidence.detail]
    means = ", ".join(f"{g.tokens_per_round:.3f} at depth {g.depth}" for g in evidence.by_depth()[:8])
    return Text(f"{evidence.format}: {seen}" + (f"; tokens per round {means}" if means else ""))


def _choice(found: Fit) -> Text:
    chosen = found.chosen
    if isnan(chosen.score):
        return Text(f"{chosen.name}: nothing was left to hold out, so its error is unknown")
    if not all(check.held_out for check in chosen.checks):
        return Text(
            f"{chosen.name}: nothing was left to hold out; off by {chosen.score:.1%} on what it was fitted to"
        )
    if isinstance(chosen.config, TraceAcceptance):
        return Text(f"trace: halves of the recording differ by {chosen.score:.1%}, which no process can beat")
    return Text(
        f"{chosen.name}: held-out error {chosen.score:.1%}, the simplest within half a point of the least"
    )


def _beside(found: Fit) -> list[RenderableType]:
    """The best fitted process beside a recording."""
    others = [each for each in found.tried if each is not found.chosen]
    if not isinstance(found.chosen.config, TraceAcceptance) or not others:
        return []
    best = best_of(others)
    text = f"Where the file cannot go: {best.name}, held-out error {best.score:.1%}"
    return ["", Text(text), "", Text(block(best.config), style="bold")]


def _table(found: Fit) -> Table:
    """Processes in rows, simplest first; what was held out in columns."""
    checks = _columns(max((each.checks for each in found.tried), key=len))
    table = Table(
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
        title_justify="left",
        caption_justify="left",
    )
    held_out = all(check.held_out for check in checks)
    table.title = "Held out, errors in %" if held_out else "Fitted, not held out, errors in %"
    table.add_column("process", no_wrap=True)
    for heading in ("free", "error", *(_short(check.what) for check in checks)):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_row("  observed", "", "", *(f"{check.observed:.3g}" for check in checks), style="dim")
    for each in found.tried:
        table.add_row(*_row(each, each is found.chosen), *_cells(each.checks, checks))
    if any(each.here_only for each in found.tried):
        table.caption = "† holds at the counted depth only"
    return table


def _columns(checks: Sequence[Check]) -> list[Check]:
    """At most ``_MOST`` depths or contexts, evenly chosen, and everything else."""
    means = [check for check in checks if check.what.startswith(_MEANS)]
    step = (len(means) - 1) / (_MOST - 1)
    shown = means if len(means) <= _MOST else [means[round(i * step)] for i in range(_MOST)]
    return [check for check in checks if check in shown or check not in means]


def _row(each: Fitted, chosen: bool) -> tuple[str, str, str]:
    mark = "★ " if chosen else "† " if each.here_only else "  "
    free = "" if isinstance(each.config, TraceAcceptance) else str(each.parameters)
    return mark + each.name, free, "-" if isnan(each.score) else f"{100 * each.score:.1f}"


def _cells(own: Sequence[Check], columns: Sequence[Check]) -> list[str]:
    """Errors in percent where they count, predicted values elsewhere."""
    found: Mapping[str, Check] = {check.what: check for check in own}
    return [_cell(found.get(column.what)) for column in columns]


def _cell(check: Check | None) -> str:
    if check is None or isnan(check.predicted) or isnan(check.error):
        return "-"
    return f"{100 * check.error:+.1f}" if check.counts else f"{check.predicted:.2f}"


def _short(what: str) -> str:
    return (
        what.replace(_MEANS, "k=")
        .replace(" at ", "\n")
        .replace(" tokens", "")
        .replace("tokens/round", "tok/round")
        .replace("request p", "req. p")
        .replace("deviation over requests", "dev.")
        .replace("lag-1 correlation", "lag 1")
    )
