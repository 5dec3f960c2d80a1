"""The one place that knows the compiler: Numba's ``njit``, kept on disk, with exact arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

from numba import njit
from numba.core import event

from sim.ahead.notice import compiling

F = TypeVar("F", bound=Callable[..., Any])
_OPTIONS: Final[dict[str, Any]] = {"error_model": "numpy", "_nrt": False}
"""No checks for division by zero and no counted references (nothing is allocated): half of the time."""
_INNER: Final[dict[str, Any]] = {**_OPTIONS, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}


def compiled(function: F) -> F:
    """Compile on first call and keep the machine code; no fast-math, so that sums are NumPy's."""
    return cast(F, njit(cache=True, **_OPTIONS)(function))


def inner(function: F) -> F:
    """Compile for other compiled functions alone."""
    return cast(F, njit(**_INNER)(function))


def inlined(function: F) -> F:
    """Become part of the compiled functions that call it, which halves the time once more."""
    return cast(F, njit(inline="always", **_INNER)(function))


class _Notice(event.Listener):
    """Tells of compilations that go on; machine code that is there already makes no event."""

    def on_start(self, event: Any) -> None:
        compiling(1)

    def on_end(self, event: Any) -> None:
        compiling(-1)


event.register("numba:compile", _Notice())  # type: ignore[no-untyped-call]
