"""A compilation is told of: in this process, from a worker, and as a line under the progress bar."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from io import StringIO
from typing import Any

import pytest
from numba import njit
from rich.console import Console
from rich.progress import TextColumn

from sim.ahead import compiled as compiler
from sim.ahead import notice
from sim.progress import COMPILING, Bar


@pytest.fixture(autouse=True)
def _unwatched() -> Iterator[None]:
    yield
    notice.adopt(None)


def test_a_compilation_begins_and_ends_once_per_function(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call of what is compiled already tells nothing."""
    told: list[int] = []
    monkeypatch.setattr(compiler, "compiling", told.append)

    def twice(number: int) -> int:
        return 2 * number

    fast: Any = njit(twice)
    assert fast(3) == 6
    assert fast(4) == 8
    assert told == [1, -1]


def test_nothing_is_counted_unwatched_and_every_process_counts_else() -> None:
    notice.adopt(None)
    notice.compiling(1)
    asked = notice.watch()
    assert not asked()
    with ProcessPoolExecutor(1, initializer=notice.adopt, initargs=(notice.watched(),)) as pool:
        pool.submit(notice.compiling, 1).result()
        assert asked()
        notice.compiling(1)
        pool.submit(notice.compiling, -1).result()
        assert asked()
    notice.compiling(-1)
    assert not asked()


def test_the_bar_says_why_it_stands_still() -> None:
    """One line while somebody compiles, none before and after."""
    bar = Bar(TextColumn("runs"), console=Console(file=StringIO()), disable=True)
    counts = []
    for more in (0, 1, -1):
        notice.compiling(more)
        counts.append([str(each) for each in bar.get_renderables()].count(COMPILING))
    assert counts == [0, 1, 0]
