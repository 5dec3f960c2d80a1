"""Whether a process of this run compiles the engine now, so that a command line can say so.

A count shared by this process and its workers; without ``watch`` there is none and nothing is counted.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from typing import Any

_count: Any = None
"""A ``multiprocessing.Value`` of the processes that compile, which its stubs give no public type."""


def watch() -> Callable[[], bool]:
    """Count in this process and in workers that it starts from now on; returns whether one compiles now."""
    count = multiprocessing.Value("i", 0)
    adopt(count)
    return lambda: count.value > 0


def watched() -> Any:
    """What a worker is to ``adopt``: the count of this process, or ``None``."""
    return _count


def adopt(count: Any) -> None:
    """Count into ``count`` from now on: what ``watched`` gave in the process that started this one."""
    global _count  # noqa: PLW0603  one count per process
    _count = count


def compiling(more: int) -> None:
    """One compilation more (1) or less (-1) goes on in this process."""
    if _count is not None:
        with _count.get_lock():
            _count.value += more
