"""A command of its own behind ``leadline``: what all of them ask of Typer."""

from __future__ import annotations

import typer


def single_command(help_text: str) -> typer.Typer:
    """An app whose callback is the command; arguments and options may come in any order."""
    return typer.Typer(
        invoke_without_command=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        # A group takes its arguments before its options unless it is told otherwise.
        context_settings={"allow_interspersed_args": True},
        subcommand_metavar="",
        help=help_text,
    )
