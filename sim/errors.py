"""Every error leadline raises on purpose.

    LeadlineError
    ├── InputError            the user's file or flag is wrong (exit code 2)
    │   ├── ScenarioError     carries every Problem found in one scenario file
    │   └── TraceError        a trace row that cannot be read, with its line number
    └── SimulationError       the simulated system broke one of its own laws (a bug in leadline)

The library raises these and never prints or exits; the command line turns them into messages.

A damaged profile raises ``calibrate.profile.ProfileError`` (``calibrate`` never imports ``sim``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class LeadlineError(Exception):
    """Root of every error raised on purpose."""


class InputError(LeadlineError):
    """Something the user wrote is wrong; the message says what would be right."""


@dataclass(frozen=True, order=True)
class Problem:
    """One mistake at one place: ``file:line:col: key: what is wrong; what would be right``.

    ``line`` and ``column`` count from 1.
    """

    line: int
    column: int
    key: str
    message: str
    file: str = ""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}"
        return f"{place}: {self.key}: {self.message}" if self.key else f"{place}: {self.message}"


class ScenarioError(InputError):
    """All problems of one scenario file, in the order in which they stand in it."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(sorted(problems))
        super().__init__("\n".join(str(problem) for problem in self.problems))

    def __reduce__(self) -> tuple[type[ScenarioError], tuple[tuple[Problem, ...]]]:
        """Travel whole from a worker process."""
        return type(self), (self.problems,)


class TraceError(InputError):
    """A trace row that cannot be read: ``file:line: what is wrong; what would be right``."""

    def __init__(self, file: str, line: int, message: str) -> None:
        self.file, self.line, self.message = file, line, message
        super().__init__(f"{file}:{line}: {message}")

    def __reduce__(self) -> tuple[type[TraceError], tuple[str, int, str]]:
        """Travel whole from a worker process."""
        return type(self), (self.file, self.line, self.message)


class SimulationError(LeadlineError):
    """A law of the simulated system was broken: a bug in leadline, never the user's fault."""
