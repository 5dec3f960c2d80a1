"""Words that messages share."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from types import NoneType
from typing import Any, Final


def shorten(text: str, most: int = 40) -> str:
    """The text in quotes, cut where it would fill the screen."""
    return repr(text if len(text) <= most else text[: most - 1] + "…")


def closest(word: str, words: Iterable[str]) -> str | None:
    """The known word that was probably meant."""
    found = difflib.get_close_matches(word, list(words), n=1, cutoff=0.6)
    return found[0] if found else None


def did_you_mean(word: str, words: Iterable[str]) -> str:
    """``; did you mean 'x'?`` or, when nothing is close, the list of what there is."""
    known = list(words)
    near = closest(word, known)
    if near is not None:
        return f"; did you mean {near!r}?"
    return f"; known are {', '.join(known)}" if known else ""


def listed(words: Iterable[str]) -> str:
    """``a``, ``a or b``, ``a, b or c``."""
    *before, last = words
    return f"{', '.join(before)} or {last}" if before else last


_NAMES: Final = ((dict, "a mapping"), (list | tuple, "a list"), (NoneType, "empty"))


def shown(value: Any) -> str:
    """A YAML value as a message names it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return shorten(value)
    if isinstance(value, float):
        return f"{value:.15g}"
    return next((name for kind, name in _NAMES if isinstance(value, kind)), str(value))
