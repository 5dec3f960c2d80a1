"""The one place that knows the compiler: Numba's ``njit``, kept on disk, with exact arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """Compile on first call and keep the machine code; no fast-math, so that sums are NumPy's."""
    return cast(F, njit(cache=True)(function))


def inner(function: F) -> F:
    """Compile for other compiled functions alone, which takes half the time."""
    return cast(F, njit(no_cpython_wrapper=True, no_cfunc_wrapper=True)(function))  # type: ignore[call-overload]
