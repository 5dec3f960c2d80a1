"""``leadline export``: an engine's own settings for the recommended policy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sim.command import single_command

if TYPE_CHECKING:
    from sim.sweep.results import Results

app = single_command("An engine's settings for the recommended policy, beside best static and off.")


@app.callback()
def export(
    engine: Annotated[
        str | None, typer.Argument(metavar="ENGINE", help="vllm, sglang, trtllm or llamacpp.")
    ] = None,
    source: Annotated[
        str | None,
        typer.Argument(metavar="RUN_OR_SCENARIO", help="A results folder, a scenario file or its name."),
    ] = None,
    cell: Annotated[str | None, typer.Option("--cell", help="Only this load.")] = None,
    policy: Annotated[
        str | None, typer.Option(help="Export this policy instead of the recommended one.")
    ] = None,
    out: Annotated[Path | None, typer.Option(file_okay=False, help="Folder for settings and files.")] = None,
    simulate: Annotated[
        bool, typer.Option(help="Simulate what settings lose that are not the policy itself.")
    ] = True,
    jobs: Annotated[int, typer.Option(min=1, help="Worker processes for a scenario's runs.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Print the settings of an engine for every load of a run."""
    from sim.errors import InputError
    from sim.export.build import Order, exports, other_presets
    from sim.export.registry import ENGINES
    from sim.export.registry import engine as engine_of
    from sim.export.render import data, text, write
    from sim.results.store import json_text

    if engine is None or source is None:
        raise InputError(f"leadline export ENGINE RUN_OR_SCENARIO; engines are {', '.join(ENGINES)}")
    chosen, results = engine_of(engine), _results(source, jobs)
    loads = exports(results, chosen, Order(cell, policy, simulate))
    error = results.comparison.error
    typer.echo(json_text(data(chosen, loads, error)) if as_json else text(chosen, loads, error), nl=False)
    for note in other_presets(engine, results):
        typer.echo(note, err=True)
    if out is not None:
        for path in write(out, loads):
            typer.echo(f"wrote {path}", err=True)


def _results(source: str, jobs: int) -> Results:
    """What a folder holds, or a scenario's comparison, run now."""
    from sim.scenario.load import find_scenario, load_scenario
    from sim.sweep.run import run_scenario
    from sim.sweep.saved import open_results

    if Path(source).is_dir():
        return open_results(Path(source))
    return run_scenario(load_scenario(find_scenario(source)), jobs)
