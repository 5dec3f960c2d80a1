"""What a published number is judged by, and the summary of a case: how many of its rows hold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One published number beside a simulated one; a relative error up to ``limit`` holds."""

    published: float
    simulated: float
    limit: float

    @property
    def error(self) -> float:
        """Relative error."""
        return self.simulated / self.published - 1

    @property
    def holds(self) -> bool:
        """Whether the error is within the limit."""
        return abs(self.error) <= self.limit


@dataclass(frozen=True)
class Account:
    """One line of the summary: a case under one set of inputs.

    ``verdicts`` are those of the rows judged, ``errors`` the relative errors from which the worst is
    taken. A case without rows says in ``inputs`` what it lacks.
    """

    case: int
    what: str
    mark: str
    inputs: str
    kind: str
    verdicts: tuple[bool, ...]
    errors: tuple[float, ...]

    @property
    def held(self) -> int:
        """Rows that hold."""
        return sum(self.verdicts)

    @property
    def worst(self) -> float:
        """The largest error, with its sign."""
        return max(self.errors, key=abs)

    @property
    def verdict(self) -> str:
        """A word for the share of rows that hold."""
        if not self.verdicts:
            return "not simulated"
        share = self.held / len(self.verdicts)
        words = ((1.0, "holds"), (0.8, "mostly"), (0.5, "in part"), (0.0, "**missed**"))
        return next(word for least, word in words if share >= least)


def account(case: int, what: str, mark: str, inputs: str, kind: str, rows: Iterable[Row]) -> Account:
    """The summary of rows that are all judged by their errors."""
    judged = tuple(rows)
    verdicts, errors = tuple(row.holds for row in judged), tuple(row.error for row in judged)
    return Account(case, what, mark, inputs, kind, verdicts, errors)


# -- Markdown --------------------------------------------------------------------------------------


def table(head: str, rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; ``head`` separates its columns by bars."""
    columns = head.count("|") + 1
    lines = [f"| {head} |", "|" + "---|" * columns, *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join(lines)


def percent(value: float) -> str:
    """A signed percentage."""
    return f"{100 * value:+.1f} %"


def error_cell(row: Row) -> str:
    """The error of a row, bold where it does not hold."""
    return percent(row.error) if row.holds else f"**{percent(row.error)}**"


def verdict(passes: bool) -> str:
    """A word for tables."""
    return "pass" if passes else "**miss**"
