"""Progress on stderr: a bar of finished runs, and a line while the engine is compiled. For command lines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from sim.ahead.notice import watch

COMPILING: Final = "compiling the engine, once per installation: about half a minute"


@contextmanager
def progress(name: str, time_left: bool = True) -> Iterator[Callable[[int, int], None]]:
    """A bar on stderr if that is a terminal, fed with (finished, total) runs; it vanishes at the end.

    ``time_left`` shows the time that is left, else the time that has passed.
    """
    errors = Console(stderr=True)
    time = TimeRemainingColumn() if time_left else TimeElapsedColumn()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), time)
    with Bar(*columns, console=errors, transient=True, disable=not errors.is_terminal) as bar:
        task = bar.add_task(name, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


class Bar(Progress):
    """A progress bar with a line below while a process of the run compiles."""

    def __init__(self, *columns: Any, **settings: Any) -> None:
        self._compiling = watch()
        super().__init__(*columns, **settings)

    def get_renderables(self) -> Iterable[RenderableType]:
        """The bar; and what takes so long."""
        yield from super().get_renderables()
        if self._compiling():
            yield Text(COMPILING)
