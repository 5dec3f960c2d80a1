"""Tables that people make themselves: CSV with a header, or JSON lines, by the names of their columns.

- ``position,rate`` (or ``conditional``), or ``depth,p1,p2,...``: rates by position
- ``depth,acceptance_length``: mean lengths at several depths; with ``context`` by context length
- ``rounds,accepted`` and, unless --depth says it, ``depth``: one request per row
- JSON lines with ``accepted_per_round`` or ``tokens_per_round`` (bonus included): requests by rounds

A line that begins with ``#`` is a comment.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import numpy as np

from sim.acceptance.fit.client_files import ordered
from sim.acceptance.fit.engine_logs import counted_rates
from sim.acceptance.fit.evidence import Counted, Evidence, Request
from sim.errors import InputError
from sim.workload.problems import Problems

_ALIASES = {
    "k": "depth",
    "num_spec_tokens": "depth",
    "tau": "acceptance_length",
    "mean_length": "acceptance_length",
    "mean_acceptance_length": "acceptance_length",
    "tau_from_counters": "acceptance_length",
    "unconditional": "rate",
    "context_tokens": "context",
    "steps": "rounds",
    "drafts": "rounds",
    "accepted_tokens": "accepted",
}
BY_ROUND = ("accepted_per_round", "tokens_per_round")

T = TypeVar("T")


class _Row(NamedTuple):
    """One line of a table: its number, and a number or nothing per known column."""

    line: int
    cells: Mapping[str, float]

    def need(self, column: str) -> float:
        """The column's value; ``ValueError`` if the cell is empty."""
        if column not in self.cells:
            raise ValueError(f"{column} is not a number; give one or remove the line")
        return self.cells[column]


def columns_of(text: str) -> tuple[str, ...]:
    """Column names of a CSV, in the words used here; empty for text that has no header."""
    header = next((line for line in text.splitlines() if line.strip() and not line.startswith("#")), "")
    names = [name.strip().lower() for name in next(csv.reader([header]), [])]
    return tuple(_ALIASES.get(name, name) for name in names)


def _rows(text: str, problems: Problems) -> Iterator[_Row]:
    columns, header = columns_of(text), True
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        if header:
            header = False
            continue
        cells = next(csv.reader([line]))
        if len(cells) != len(columns):
            problems.add(number, f"has {len(cells)} fields where the header has {len(columns)}; cut or fill")
            continue
        yield _Row(
            number, {name: float(cell) for name, cell in zip(columns, cells, strict=True) if _is(cell)}
        )


def _is(cell: str) -> bool:
    try:
        return bool(np.isfinite(float(cell)))
    except ValueError:
        return False


def read_rates(file: str, text: str, _depth: int | None) -> Evidence:
    """Rates by position, one position per row, or one depth per row in ``p1, p2, ...``."""
    problems, columns = Problems(file), columns_of(text)
    rows = list(_rows(text, problems))
    problems.check()
    if "position" not in columns:
        groups = _each(rows, problems, _rates_of)
    else:
        key = "conditional" if "conditional" in columns and "rate" not in columns else "rate"
        rates = _each(rows, problems, lambda row: row.need(key))
        groups = [group_of_rates(file, rates, conditional=key == "conditional")]
    return Evidence("rates", counted=tuple(groups))


def _rates_of(row: _Row) -> Counted:
    positions = sorted(int(name[1:]) for name in row.cells if name[:1] == "p" and name[1:].isdigit())
    rates = [row.cells[f"p{position}"] for position in positions]
    if positions != list(range(1, len(rates) + 1)) or not rates:
        raise ValueError("rates by position start at p1 and leave none out")
    if len(rates) != row.cells.get("depth", len(rates)):
        raise ValueError(f"has {len(rates)} rates for depth {row.cells['depth']:g}; give one per draft")
    rounds = row.cells.get("rounds", 0.0)
    return counted_rates(rates, rounds * len(rates), rounds * sum(rates), rounds)


def group_of_rates(place: str, rates: list[float], *, conditional: bool) -> Counted:
    """Rates that someone states, without a count; ``InputError`` names ``place``."""
    if not rates or not all(0 <= rate <= 1 for rate in rates):
        raise InputError(f"{place}: rates are {rates}; give at least one, each from 0 to 1")
    unconditional = np.cumprod(rates).tolist() if conditional else rates
    for before, after in pairwise(unconditional):
        if after > before:
            raise InputError(
                f"{place}: unconditional rates never rise, but {after:g} follows {before:g}; rates that "
                "rise with position are conditional ones (--conditional, or name the column so)"
            )
    return Counted(len(rates), 1 + sum(unconditional), tuple(unconditional))


def group_of_length(place: str, length: float, depth: int | None) -> Counted:
    """A mean length that someone states; ``InputError`` names ``place``."""
    if depth is None:
        raise InputError(
            f"{place} needs the depth it was measured at (--depth): {length:g} tokens of how many?"
        )
    if not 1 <= length <= depth + 1:
        raise InputError(
            f"{place} is {length:g}, outside 1..{depth + 1}; it counts the bonus token, at depth {depth}"
        )
    return Counted(depth, length)


def read_lengths(file: str, text: str, depth: int | None) -> Evidence:
    """Mean acceptance lengths by depth, or by context at one depth."""
    problems = Problems(file)
    groups = _each(list(_rows(text, problems)), problems, lambda row: _length(row, depth))
    return Evidence("lengths", counted=tuple(groups))


def _length(row: _Row, depth: int | None) -> Counted:
    own = int(row.cells.get("depth", depth or 0))
    length = row.need("acceptance_length")
    if own < 1:
        raise ValueError("says no depth; add a column depth, or say --depth")
    if not 1 <= length <= own + 1:
        raise ValueError(
            f"acceptance_length {length:g} is outside 1..{own + 1}, what a depth of {own} allows"
        )
    return Counted(own, length, rounds=row.cells.get("rounds", 0.0), context_tokens=row.cells.get("context"))


def read_requests(file: str, text: str, depth: int | None) -> Evidence:
    """Requests by their sums (CSV), or by rounds (JSON lines)."""
    problems = Problems(file)
    if text.lstrip().startswith("{"):
        requests = _by_round(text, depth, problems)
    else:
        requests = _each(list(_rows(text, problems)), problems, lambda row: _sums(row, depth))
    return Evidence("requests", requests=tuple(requests))


def _sums(row: _Row, depth: int | None) -> Request:
    rounds, accepted = row.need("rounds"), row.need("accepted")
    own = row.cells.get("depth", depth or row.cells.get("drafted", 0) / max(rounds, 1))
    if own != int(own) or own < 1:
        raise ValueError(f"depth comes out as {own:g}; add a column depth, or say --depth")
    if rounds < 1 or not 0 <= accepted <= own * rounds:
        raise ValueError(
            f"{rounds:g} rounds of depth {own:g} cannot accept {accepted:g} drafts; mend the row"
        )
    return Request(int(own), int(rounds), int(accepted))


def _by_round(text: str, depth: int | None, problems: Problems) -> list[Request]:
    requests = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                request = _rounds(json.loads(line), depth)
            except (TypeError, ValueError) as error:
                problems.add(number, str(error))
                continue
            if request is not None:
                requests.append(request)
    problems.check()
    return requests


def _rounds(row: Mapping[str, Any], depth: int | None) -> Request | None:
    key = next((key for key in BY_ROUND if key in row), None)
    if key is None:
        raise ValueError(f"lacks {' or '.join(BY_ROUND)}; give the rounds of one request per line")
    accepted = [int(value) - (key == "tokens_per_round") for value in row[key]]
    drafted = row.get("drafted_per_round")
    own = int(row.get("depth") or depth or (max(drafted) if drafted else 0))
    if own < 1:
        raise ValueError("says no depth; add depth or drafted_per_round, or say --depth")
    return ordered(accepted, drafted or [own] * len(accepted), own)


def _each(rows: list[_Row], problems: Problems, parse: Callable[[_Row], T]) -> list[T]:
    """What ``parse`` makes of each row; all its complaints together."""
    found = []
    for row in rows:
        try:
            found.append(parse(row))
        except ValueError as error:
            problems.add(row.line, str(error))
    problems.check()
    if not found:
        raise InputError(f"{problems.file}: has no rows below its header")
    return found
