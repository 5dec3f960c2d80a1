"""Mistakes of one trace file, gathered so that the user meets them together."""

from __future__ import annotations

from sim.errors import TraceError

MOST_PROBLEMS = 20


class Problems:
    """Bad rows so far; one ``TraceError`` tells them all."""

    def __init__(self, file: str) -> None:
        self.file = file
        self._found: list[tuple[int, str]] = []

    def add(self, line: int, message: str) -> None:
        """Note a bad row; at ``MOST_PROBLEMS`` reading is given up and ``TraceError`` raised."""
        self._found.append((line, message))
        if len(self._found) == MOST_PROBLEMS:
            self._raise(f"\n{self.file}: reading stopped at {MOST_PROBLEMS} bad rows")

    def check(self) -> None:
        """Raise ``TraceError`` if there was any mistake."""
        if self._found:
            self._raise("")

    def fail(self, line: int, message: str) -> TraceError:
        """Make the error for a mistake after which nothing more can be read; the caller raises it."""
        return TraceError(self.file, line, message)

    def _raise(self, ending: str) -> None:
        (line, first), *rest = self._found
        others = "".join(f"\n{self.file}:{number}: {message}" for number, message in rest)
        raise TraceError(self.file, line, first + others + ending)
