"""docs/command-line.md: every command with its arguments and options, from the commands themselves.

``python -m tests.docs.command_line`` writes the page; a test keeps it true. Commands are those of
``sim.cli`` and of the entry points that pyproject.toml names, installed or not.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

from typer.main import get_command

from tests.docs.blocks import table

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "command-line.md"
GROUP = "leadline.commands"
HEAD = """# Command line

What `leadline COMMAND --help` says, on one page. Exit codes: 0 done, 1 a warning under `--strict` or an objective out of
reach, 2 wrong input, 130 interrupted. Results go to standard output, progress and warnings to standard error.
`python -m tests.docs.command_line` writes this page.
"""


def commands() -> Iterator[tuple[str, Any]]:
    """Every command that does something, by its full name: those of ``sim.cli`` first, then by name."""
    from sim.cli import app

    yield from _leaves("leadline", get_command(app))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for name, value in sorted(project["entry-points"][GROUP].items()):
        yield from _leaves(f"leadline {name}", get_command(EntryPoint(name, value, GROUP).load()))


def _leaves(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    children = getattr(command, "commands", {})
    if name != "leadline" and (not children or command.invoke_without_command):
        yield name, command
    for child, inner in children.items():
        yield from _leaves(f"{name} {child}", inner)


def section(name: str, command: Any) -> str:
    """One command: usage, what it does, its arguments and options."""
    shown = [p for p in command.params if p.name != "help" and not getattr(p, "hidden", False)]
    arguments = [p for p in shown if p.param_type_name == "argument"]
    usage = " ".join([name, *(_metavar(p) for p in arguments), *(["[OPTIONS]"] if len(shown) > len(arguments) else [])])
    about = " ".join((command.help or command.callback.__doc__ or "").split())
    parts = [f"## {name}", f"    {usage}", about]
    if shown:
        parts.append(table(("", "", "default"), (_row(p) for p in shown)))
    return "\n\n".join(parts)


def _row(param: Any) -> tuple[str, str, str]:
    default = "" if callable(param.default) or param.default in (None, False, ()) else _text(param.default)
    about = param.help or ""
    if param.param_type_name == "argument":
        return f"`{_metavar(param)}`", about, f"`{default}`" if default else ""
    names = ", ".join([*param.opts, *param.secondary_opts])
    value = "" if param.is_flag else f" {_value(param)}"
    repeat = " Repeatable." if param.multiple and "repeat" not in about.lower() else ""
    return f"`{names}{value}`", about + repeat, f"`{default}`" if default and not param.is_flag else ""


def _text(default: Any) -> str:
    return str(getattr(default, "value", default))


def _metavar(param: Any) -> str:
    name = str(param.metavar or param.name.upper()).strip("[]. {}")
    name += "..." if param.nargs == -1 else ""
    return name if param.required else f"[{name}]"


def _value(param: Any) -> str:
    choices = getattr(param.type, "choices", None)
    if choices:
        return "|".join(_text(choice) for choice in choices)
    return str(param.metavar or {"integer range": "N", "integer": "N", "float": "X", "float range": "X"}.get(param.type.name, param.type.name.upper()))


def page() -> str:
    """The page made anew."""
    return HEAD + "\n" + "\n\n".join(section(name, command) for name, command in commands()) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
