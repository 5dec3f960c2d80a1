"""A YAML file as plain data, with the place of every key and value.

PyYAML only composes the node tree: nothing is constructed, so no tag can run code. Scalars follow
YAML 1.2's core schema (https://yaml.org/spec/1.2.2/#103-core-schema) without its octal and
hexadecimal forms: ``off``, ``yes`` and ``1:30`` are text, where YAML 1.1 reads other things.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import yaml

from sim.errors import Problem
from sim.scenario.limits import too_large
from sim.scenario.syntax import syntax_problem
from sim.scenario.words import shorten

MAX_BYTES: Final = 1_000_000
MAX_VALUES: Final = 20_000
MAX_NESTING: Final = 24

KeyPath = tuple[str | int, ...]
_TAG = "tag:yaml.org,2002:"
_SCALARS: Final[dict[str, Callable[[str], Any]]] = {
    "null": lambda text: None,
    "bool": lambda text: {"true": True, "false": False}[text.lower()],
    "int": int,
    "float": lambda text: float(text.lower().replace(".inf", "inf").replace(".nan", "nan")),
}


class Place(NamedTuple):
    """A place in a file; ``line`` and ``column`` count from 1."""

    line: int
    column: int


class Finding(NamedTuple):
    """What is wrong at a path of the data; ``at_key`` points to its key instead of its value.

    ``name`` is the path shown to the user where it differs (a missing key has no place).
    """

    path: KeyPath
    message: str
    at_key: bool = False
    name: KeyPath | None = None


@dataclass
class Document:
    """One file: its data, the places of its keys and values, and what was wrong with its YAML.

    ``tainted`` holds the paths whose value could not be read; nothing more is said about those.
    """

    file: str
    data: Any = None
    keys: dict[KeyPath, Place] = field(default_factory=dict)
    values: dict[KeyPath, Place] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    tainted: set[KeyPath] = field(default_factory=set)

    def place(self, path: KeyPath, at_key: bool = False) -> Place:
        """Place of the value (or key) at ``path``, or of the nearest key above it."""
        if not at_key and path in self.values:
            return self.values[path]
        for end in range(len(path), 0, -1):
            if path[:end] in self.keys:
                return self.keys[path[:end]]
            if path[:end] in self.values:
                return self.values[path[:end]]
        return Place(1, 1)

    def problem(self, finding: Finding) -> Problem:
        """A finding about this file as a problem with its place."""
        place = self.place(finding.path, finding.at_key)
        name = finding.path if finding.name is None else finding.name
        return Problem(place.line, place.column, dotted(name), finding.message, self.file)

    def is_tainted(self, path: KeyPath) -> bool:
        """Whether the value at ``path`` is, or is inside, one that could not be read."""
        return any(path[:end] in self.tainted for end in range(len(path) + 1))


def dotted(path: KeyPath) -> str:
    """``('policies', 1, 'k')`` as ``policies[1].k``."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")


class _Loader(yaml.SafeLoader):
    """Composes nodes under limits and with this module's own scalars."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 as PyYAML has it

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.nesting = self.count = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """One node, unless there are too many or they are nested too deeply."""
        self.nesting, self.count = self.nesting + 1, self.count + 1
        if self.nesting > MAX_NESTING or self.count > MAX_VALUES:
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            what = f"{MAX_NESTING} levels" if self.nesting > MAX_NESTING else f"{MAX_VALUES} values"
            raise yaml.MarkedYAMLError(problem=f"more than {what}", problem_mark=mark)
        node = super().compose_node(parent, index)
        self.nesting -= 1
        return node


for _name, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+", list("-+0123456789")),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", list("-+.0123456789")),
    ("float", r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", list("-+.")),
):
    _Loader.add_implicit_resolver(_TAG + _name, re.compile(rf"^(?:{_pattern})$"), _first)


def parse_yaml(text: str, file: str) -> Document:
    """Data of one YAML text; what is wrong with it is in ``problems`` (never raised)."""
    document = Document(file)
    try:
        loader = _Loader(text)
    except yaml.YAMLError as error:
        document.problems.append(syntax_problem(error, text, file))
        return document
    try:
        node = loader.get_single_node()
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        document.problems.append(syntax_problem(error, text, file, loader.get_mark()))
        return document
    if node is not None:
        _Reader(document).read(node)
    return document


class _TooManyError(Exception):
    """Aliases expand to more values than a scenario can need."""


class _Reader:
    """Turns nodes into data, noting places and mistakes in ``document``."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.count = 0
        self.open: set[int] = set()

    def read(self, node: yaml.Node) -> None:
        """Fill the document from its root."""
        try:
            self.document.data = self._value(node, ())
        except _TooManyError:
            self._wrong(node, (), f"its aliases stand for more than {MAX_VALUES} values; write them out")

    def _value(self, node: yaml.Node, path: KeyPath) -> Any:
        self.count += 1
        if self.count > MAX_VALUES:
            raise _TooManyError
        self.document.values[path] = _place(node)
        if id(node) in self.open:
            return self._wrong(node, path, "the alias stands for something that holds itself; write it out")
        if not _standard(node):
            tag = node.tag.replace(_TAG, "!!")
            return self._wrong(node, path, f"the tag {tag!r} is not allowed; write plain YAML without '!'")
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, path)
        self.open.add(id(node))
        inside = self._mapping(node, path) if isinstance(node, yaml.MappingNode) else self._list(node, path)
        self.open.discard(id(node))
        return inside

    def _list(self, node: yaml.Node, path: KeyPath) -> list[Any]:
        return [self._value(item, (*path, i)) for i, item in enumerate(node.value)]

    def _mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, Any]:
        data: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = self._key(key_node, path)
            if key is None:
                continue
            if key in data:
                first = self.document.keys[(*path, key)].line
                self._note(key_node, (*path, key), f"is given twice, first on line {first}; keep one")
                continue
            self.document.keys[(*path, key)] = _place(key_node)
            data[key] = self._value(value_node, (*path, key))
        return data

    def _key(self, node: yaml.Node, path: KeyPath) -> str | None:
        if not isinstance(node, yaml.ScalarNode) or node.tag != f"{_TAG}str":
            shown = repr(node.value) if isinstance(node, yaml.ScalarNode) else "a list or mapping"
            self._note(
                node, path, f"{shown} cannot be a key; a key is text (in quotes if it looks like a number)"
            )
            return None
        if node.value == "<<":
            self._note(node, path, "the merge key '<<' is not allowed; write the keys out")
            return None
        return str(node.value) if self._is_text(node, path) else None

    def _scalar(self, node: yaml.ScalarNode, path: KeyPath) -> Any:
        kind, text = node.tag.removeprefix(_TAG), node.value
        if too_large(text):
            return self._wrong(node, path, f"{shorten(text)} is too large; no quantity here goes that far")
        if kind == "str":
            return text if self._is_text(node, path) else None
        try:
            return _SCALARS[kind](text)
        except (ValueError, KeyError):
            return self._wrong(node, path, f"{shorten(text)} is not {kind}, as its tag says; remove the tag")

    def _is_text(self, node: yaml.ScalarNode, path: KeyPath) -> bool:
        if any("\ud800" <= letter <= "\udfff" for letter in node.value):
            self._wrong(node, path, "holds half a character (a lone surrogate); write the character itself")
            return False
        return True

    def _note(self, node: yaml.Node, path: KeyPath, message: str) -> None:
        place = _place(node)
        self.document.problems.append(
            Problem(place.line, place.column, dotted(path), message, self.document.file)
        )

    def _wrong(self, node: yaml.Node, path: KeyPath, message: str) -> Any:
        """Note that the value cannot be used; it stands as null."""
        self._note(node, path, message)
        self.document.tainted.add(path)
        return None


def _place(node: yaml.Node) -> Place:
    return Place(node.start_mark.line + 1, node.start_mark.column + 1)


def _standard(node: yaml.Node) -> bool:
    allowed = {
        yaml.MappingNode: ("map",),
        yaml.SequenceNode: ("seq",),
        yaml.ScalarNode: ("str", "null", "bool", "int", "float"),
    }
    return node.tag in {_TAG + name for name in allowed[type(node)]}


def walk(data: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """Every value of plain data with its path, containers first."""
    yield path, data
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        yield from walk(value, (*path, key))
