"""PyYAML's syntax errors in words that say what would be right."""

from __future__ import annotations

from typing import Final

import yaml
from yaml.reader import ReaderError

from sim.errors import Problem

_AT_PROBLEM: Final = (
    ("found character '\\t'", "a tab cannot stand here; indent with spaces"),
    ("cannot start any token", "this character cannot begin a value; put the text in quotes"),
    (
        "mapping values are not allowed",
        "a second ': ' on one line, or a wrong indent; quote the text or align it",
    ),
    ("expected <block end>", "the indent fits neither the lines above nor a new block; align it with them"),
    (
        "expected ',' or '}'",
        "the '{' of line {line} is not closed before this; end it with '}', with ',' between keys",
    ),
    (
        "expected ',' or ']'",
        "the '[' of line {line} is not closed before this; end it with ']', with ',' between items",
    ),
    (
        "found unknown escape character",
        "this \\ escape does not exist; use single quotes for a plain backslash",
    ),
    ("found undefined alias", "the alias has no anchor before it; write the value out"),
    ("found duplicate anchor", "the anchor exists already; write the value out"),
    ("but found another document", "a second document begins here; one file holds one scenario"),
    ("found undefined tag handle", "'!' tags are not allowed; write plain YAML"),
    (
        "block sequence entries are not allowed",
        "a list item '-' cannot stand here; begin it on a line of its own",
    ),
    ("more than", "the file nests or holds {said}; a scenario needs far less"),
)
_AT_START: Final = (
    (
        "could not find expected ':'",
        "the line is no 'key: value'; add the colon, or close the quote before it",
    ),
    ("found unexpected end of stream", "the quote is not closed; close it"),
    ("found unexpected document separator", "the quote is not closed; close it"),
)
"""Said of the place where the broken thing begins, rather than where the parser gave up."""


def syntax_problem(error: Exception, text: str, file: str, mark: yaml.Mark | None = None) -> Problem:
    """A problem at the place that the parser names; ``mark`` is where it had got to."""
    if isinstance(error, ReaderError):
        return _unprintable(error, text, file)
    if not isinstance(error, yaml.MarkedYAMLError):
        return _problem(mark, "a number or escape here is out of range; write it another way", file)
    said, start = error.problem or "", error.context_mark
    for words, meaning in _AT_START:
        if words in said:
            return _problem(start or error.problem_mark, meaning, file)
    for words, meaning in _AT_PROBLEM:
        if words in said:
            line = str(start.line + 1) if start else "?"
            message = meaning.replace("{said}", said).replace("{line}", line)
            return _problem(error.problem_mark or mark, message, file)
    return _problem(
        error.problem_mark or mark, f"is not YAML ({said}); see https://yaml.org/spec/1.2.2", file
    )


def _problem(mark: yaml.Mark | None, message: str, file: str) -> Problem:
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    return Problem(line, column, "", message, file)


def _unprintable(error: ReaderError, text: str, file: str) -> Problem:
    before = text[: error.position]
    line = before.count("\n") + 1
    column = len(before) - (before.rfind("\n") + 1) + 1
    return Problem(
        line, column, "", "holds a control character; remove it, or escape it in double quotes", file
    )
