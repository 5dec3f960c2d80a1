"""docs/command-line.md: every command with its arguments and options, from the commands themselves.

``python -m tests.docs.command_line`` writes the page; a test keeps it true. Commands are those of
``sim.cli`` and of the entry points that pyproject.toml names, installed or not.
"""

from __future__ import annotations

import inspect
import tomllib
import types
from collections.abc import Callable, Iterator
from enum import Enum
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

import typer
from typer.models import ArgumentInfo

from tests.docs.blocks import table

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "command-line.md"
GROUP = "leadline.commands"
HEAD = """# Command line

What `leadline COMMAND --help` says, on one page. Exit codes: 0 done, 1 a warning under `--strict` or an
objective out of reach, 2 wrong input, 130 interrupted. Results go to standard output, progress and warnings
to standard error. `python -m tests.docs.command_line` writes this page.
"""
VALUES = {int: "N", float: "X", Path: "PATH", str: "TEXT"}


def commands() -> Iterator[tuple[str, str, Callable[..., Any]]]:
    """Name, help and function of every command: those of ``sim.cli`` first, then the others by name."""
    from sim.cli import app

    yield from _of_app("leadline", app, alone=False)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for name, value in sorted(project["entry-points"][GROUP].items()):
        yield from _of_app(f"leadline {name}", EntryPoint(name, value, GROUP).load())


def _of_app(
    name: str, app: typer.Typer, *, alone: bool = True
) -> Iterator[tuple[str, str, Callable[..., Any]]]:
    """An app's callback, where it is a command by itself, and its commands."""
    callback = app.registered_callback
    if (
        alone
        and callback is not None
        and callback.callback is not None
        and app.info.invoke_without_command is True
    ):
        yield name, str(app.info.help), callback.callback
    for command in app.registered_commands:
        function = command.callback
        assert function is not None
        called = command.name or function.__name__.replace("_", "-")
        yield f"{name} {called}", command.help or inspect.getdoc(function) or "", function


def section(name: str, about: str, function: Callable[..., Any]) -> str:
    """One command: usage, what it does, its arguments and options."""
    hints = get_type_hints(function, include_extras=True)
    found = [_Parameter(each, hints[each.name]) for each in inspect.signature(function).parameters.values()]
    shown = [each for each in found if each.info is not None and not each.info.hidden]
    words = [each.name for each in shown if each.is_argument]
    options = ["[OPTIONS]"] if any(not each.is_argument for each in shown) else []
    parts = [f"## {name}", "    " + " ".join([name, *words, *options]), " ".join(about.split())]
    if shown:
        parts.append(table(("", "", "default"), (each.row for each in shown)))
    return "\n\n".join(parts)


class _Parameter:
    """One parameter of a command's function: its type and what Typer is told about it."""

    def __init__(self, parameter: inspect.Parameter, hint: Any) -> None:
        kind, self.info = get_args(hint) if hasattr(hint, "__metadata__") else (hint, None)
        self.default, self.key = parameter.default, parameter.name
        inner = [each for each in get_args(kind) if each is not type(None)]
        self.kind = inner[0] if get_origin(kind) in (Union, types.UnionType) else kind
        self.several = get_origin(self.kind) is list
        self.kind = get_args(self.kind)[0] if self.several else self.kind

        # Typer takes the first name of an annotated option for its default.
        first = getattr(self.info, "default", None)
        named = [first] if isinstance(first, str) and first.startswith("-") else []
        self.names = [*named, *(getattr(self.info, "param_decls", None) or ())]

    @property
    def is_argument(self) -> bool:
        """Whether it has no name on the command line."""
        return isinstance(self.info, ArgumentInfo)

    @property
    def name(self) -> str:
        """As it is written: an argument's word, or an option's names and value."""
        if self.is_argument:
            word = (self.info.metavar or self.key.upper()).strip("[]. {}") + ("..." if self.several else "")
            return word if self.default is inspect.Parameter.empty else f"[{word}]"
        plain = "--" + self.key.replace("_", "-")
        if self.kind is bool:
            return ", ".join(self.names or (plain, f"--no-{plain[2:]}"))
        return f"{', '.join(self.names or (plain,))} {self.info.metavar or self._value}"

    @property
    def _value(self) -> str:
        if isinstance(self.kind, type) and issubclass(self.kind, Enum):
            return "/".join(str(each.value) for each in self.kind)
        return VALUES.get(self.kind, "VALUE")

    @property
    def row(self) -> tuple[str, str, str]:
        """Name, help and default of the table."""
        stated = self.default is not inspect.Parameter.empty and self.default not in (None, False, ())
        default = (
            f"`{getattr(self.default, 'value', self.default)}`" if stated and self.kind is not bool else ""
        )
        on = "on" if self.kind is bool and self.default is True else ""
        repeat = " Repeatable." if self.several and not self.is_argument and not self._says_repeat else ""
        return f"`{self.name}`", (self.info.help or "") + repeat, default or on

    @property
    def _says_repeat(self) -> bool:
        return "repeat" in (self.info.help or "").lower()


def page() -> str:
    """The page made anew."""
    return HEAD + "\n" + "\n\n".join(section(*each) for each in commands()) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
