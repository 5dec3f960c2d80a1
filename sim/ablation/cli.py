"""``leadline ablate``: what each mechanism of the engine is worth in a scenario."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sim.command import single_command

if TYPE_CHECKING:
    from sim.ablation.shares import Ablation
    from sim.scenario.model import Scenario

app = single_command(
    "What each mechanism of the engine is worth: the scenario as it stands, and without one at a time."
)


@app.callback()
def ablate(
    scenario: Annotated[
        str | None,
        typer.Argument(metavar="FILE_OR_NAME", help="A scenario file, or a shipped scenario's name."),
    ] = None,
    switches: Annotated[
        str | None, typer.Option(help="Only these mechanisms: switches of `engine:`, separated by commas.")
    ] = None,
    against: Annotated[
        str, typer.Option(metavar="PRESET", help="The engine whose values stand for a mechanism turned off.")
    ] = "ideal",
    policies: Annotated[
        str | None, typer.Option(help="Only these policies: labels, separated by commas.")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="First seed.")] = None,
    seeds: Annotated[int | None, typer.Option(min=1, max=1000, help="How many seeds.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="One seed and at most 300 requests.")] = False,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, help="Worker processes; default: one per core. No result depends on it."),
    ] = None,
    out: Annotated[Path | None, typer.Option(file_okay=False, help="Folder for ablation.json.")] = None,
    report: Annotated[bool, typer.Option("--report", help="Write ablation.html into --out, too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Run a scenario as it stands and without each mechanism, and print what each one is worth."""
    from rich.console import Console

    from sim.ablation.report import data, page, tables
    from sim.errors import InputError
    from sim.report import html
    from sim.results.store import json_text
    from sim.scenario.choose import Choice, read_chosen
    from sim.scenario.load import find_scenario

    if scenario is None:
        raise InputError("leadline ablate FILE_OR_NAME; leadline scenarios lists those that ship")
    if report:
        from sim.report.vega import check_extra

        if out is None:
            raise InputError("--report writes into a folder; add --out DIR")
        check_extra()
    chosen = read_chosen(find_scenario(scenario), Choice(seed, seeds, policies, quick)).scenario
    found = _run(chosen, against, switches, jobs)
    text = json_text(data(found))
    if out is not None:
        _write(out / "ablation.json", text)
        if report:
            _write(out / "ablation.html", html(page(found)))
    if as_json:
        typer.echo(text, nl=False)
        return
    console = Console()
    wide = console if console.is_terminal else Console(width=max(console.width, 110))
    wide.print(tables(found), highlight=False, markup=False)


def _write(path: Path, text: str) -> None:
    from sim.files import write_whole

    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, text)
    typer.echo(f"wrote {path}", err=True)


def _run(scenario: Scenario, against: str, switches: str | None, jobs: int | None) -> Ablation:
    """Run with a progress bar on stderr."""
    from sim.ablation.run import ablate_scenario
    from sim.cli import _cores
    from sim.explain.table import preset_of
    from sim.progress import progress

    names = None if switches is None else [name.strip() for name in switches.split(",") if name.strip()]
    with progress(scenario.name) as tell:
        return ablate_scenario(scenario, preset_of(against), names, jobs or _cores(), tell)
