"""``leadline explain``: what a preset of the engine sets, what that does, and where it was read."""

from __future__ import annotations

from typing import Annotated

import typer

from sim.command import single_command

app = single_command(
    "What a preset of `engine:` sets, and where each value was read; all presets without a name."
)


@app.callback()
def explain(
    preset: Annotated[
        str | None,
        typer.Argument(metavar="[PRESET]", help="ideal, vllm_v1, sglang, ...; default: all of them."),
    ] = None,
    against: Annotated[
        str | None, typer.Option(metavar="PRESET", help="Only what differs from this preset.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Print a preset's switches and limits, with what each does and its source."""
    from rich.console import Console

    from sim.errors import InputError
    from sim.explain import table, terminal
    from sim.results.store import json_text

    if preset is None and against is not None:
        raise InputError(
            "--against compares two presets; name one before it: leadline explain PRESET --against OTHER"
        )
    if preset is None:
        data, shown = table.listing, terminal.listing
    elif against is None:
        data, shown = lambda: table.data(preset), lambda: terminal.preset(preset)
    else:
        data, shown = lambda: table.data_against(preset, against), lambda: terminal.against(preset, against)
    if as_json:
        typer.echo(json_text(data()), nl=False)
        return
    console = Console()
    wide = console if console.is_terminal else Console(width=max(console.width, 140))
    wide.print(shown(), highlight=False, markup=False)
