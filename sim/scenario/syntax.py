"""PyYAML's syntax errors in words that say what would be right."""

from __future__ import annotations

from typing import Final

import yaml
from yaml.reader import ReaderError

from sim.errors import Problem

_MEANING: Final = (
    ("found character '\\t'", "a tab cannot stand here; indent with spaces"),
    ("cannot start any token", "this character cannot begin a value; put the text in quotes"),
    ("mapping values are not allowed", "a second ': ' on one line, or a wrong indent; quote the text or indent it"),
    ("could not find expected ':'", "the line above is no 'key: value'; add the colon or close the quote"),
    ("expected <block end>", "the indent fits neither the lines above nor a new block; align it with them"),
    ("expected ',' or '}'", "a '{' is not closed; end it with '}' and separate its keys with ','"),
    ("expected ',' or ']'", "a '[' is not closed; end it with ']' and separate its items with ','"),
    ("found unexpected end of stream", "a quote is not closed before the file ends; close it"),
    ("found unexpected document separator", "a quote is not closed before '---'; close it"),
    ("found unknown escape character", "this \\ escape does not exist; use single quotes for a plain backslash"),
    ("found undefined alias", "the alias has no anchor before it; write the value out"),
    ("found duplicate anchor", "the anchor exists already; write the value out"),
    ("but found another document", "a second document begins here; one file holds one scenario"),
    ("found undefined tag handle", "'!' tags are not allowed; write plain YAML"),
    ("block sequence entries are not allowed", "a list item '-' cannot stand here; begin it on a line of its own"),
    ("more than", "the file nests or holds {}; a scenario needs far less"),
)


def syntax_problem(error: Exception, text: str, file: str, mark: yaml.Mark | None = None) -> Problem:
    """A problem at the place that the parser names; ``mark`` is where it had got to."""
    if isinstance(error, ReaderError):
        return _unprintable(error, text, file)
    said = ""
    if isinstance(error, yaml.MarkedYAMLError):
        said, mark = error.problem or "", error.problem_mark or mark
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    return Problem(line, column, "", _meaning(said), file)


def _meaning(said: str) -> str:
    for words, meaning in _MEANING:
        if words in said:
            return meaning.format(said)
    return f"is not YAML ({said or 'a number or escape is out of range'}); see https://yaml.org/spec/1.2.2"


def _unprintable(error: ReaderError, text: str, file: str) -> Problem:
    before = text[: error.position]
    line = before.count("\n") + 1
    column = len(before) - (before.rfind("\n") + 1) + 1
    return Problem(line, column, "", "holds a control character; remove it, or escape it in double quotes", file)
