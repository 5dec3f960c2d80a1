"""``leadline map``: where each policy and depth wins, over load, acceptance, context or output length."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sim.command import single_command

if TYPE_CHECKING:
    from sim.map.axes import Wanted
    from sim.map.model import Map
    from sim.scenario.model import Scenario

app = single_command(
    "Map which policy and which depth is best over load, acceptance, context or output length."
)
_SEEDS = 5
_EXPLORE_SEEDS = 3
_End = "AXIS=VALUE"


@app.callback()
def make_map(
    context: typer.Context,
    scenario: Annotated[
        str, typer.Argument(metavar="FILE_OR_NAME", help="A scenario file, or a shipped scenario's name.")
    ],
    over: Annotated[
        str, typer.Option(help="Axes, separated by commas: load, acceptance, context, output.")
    ] = "load,acceptance",
    explore: Annotated[
        bool, typer.Option("--explore", help="All four axes on a coarse grid, for the explorer.")
    ] = False,
    low: Annotated[
        list[str] | None,
        typer.Option(
            "--from", metavar=_End, help="Where an axis begins: load=2/s, load=10%, acceptance=0.3."
        ),
    ] = None,
    high: Annotated[
        list[str] | None, typer.Option("--to", metavar=_End, help="Where it ends; default: automatic.")
    ] = None,
    points: Annotated[
        list[str] | None, typer.Option(metavar="AXIS=N", help="Coarse values of an axis; default: 6.")
    ] = None,
    policies: Annotated[
        str | None, typer.Option(help="Only these policies: labels, separated by commas.")
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, max=100, help="Seeds of every point; default: 5, to explore 3.")
    ] = None,
    refine: Annotated[
        int | None, typer.Option(min=0, help="Points added where winners change; default: 24, to explore 0.")
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, help="Worker processes; default: one per core. No result depends on it."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(file_okay=False, help="Folder for map.json, map.md, pictures and explorer.")
    ] = None,
) -> None:
    """Simulate a coarse grid, add points where the winner changes, and print who wins where."""
    from sim.errors import InputError
    from sim.map.make import DEFAULT_REFINE

    over_source = context.get_parameter_source("over")
    if explore and over_source is not None and over_source.name != "DEFAULT":
        raise InputError("--explore takes all four axes, --over only some; give one of the two")
    names = ["load", "acceptance", "context", "output"] if explore else _names(over)
    wanted = _wanted(names, low or [], high or [], points or [], explore)
    found = _scenario(scenario, policies, seeds or (_EXPLORE_SEEDS if explore else _SEEDS))
    budget = (0 if explore else DEFAULT_REFINE) if refine is None else refine
    if out is not None:
        _make_folder(out)
    result = _build(found, wanted, budget, jobs)
    _print(result)
    if out is not None:
        _write(result, out)


def _make_folder(out: Path) -> None:
    """Before anything is simulated: a folder that cannot be made should cost no time."""
    from sim.errors import InputError

    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--out {out}: the folder cannot be made ({error.strerror})") from None


def _names(over: str) -> list[str]:
    return [name.strip() for name in over.split(",") if name.strip()]


def _scenario(name: str, policies: str | None, seeds: int) -> Scenario:
    from sim.scenario.choose import Choice, read_chosen
    from sim.scenario.load import find_scenario

    return read_chosen(find_scenario(name), Choice(seed=0, seeds=seeds, policies=policies)).scenario


def _wanted(
    names: list[str], low: list[str], high: list[str], points: list[str], explore: bool
) -> list[Wanted]:
    from sim.errors import InputError
    from sim.map.axes import EXPLORE_POINTS, wanted_axes

    if not names:
        raise InputError("--over: names no axis; take some of load, acceptance, context, output")
    lows, highs, counts = (_pairs(*each) for each in (("--from", low), ("--to", high), ("--points", points)))
    ends = {name: (lows.get(name, ""), highs.get(name, "")) for name in {**lows, **highs}}
    bad = [
        f"--points: {name}={text} is no count; write {name}=5"
        for name, text in counts.items()
        if not text.isdecimal()
    ]
    if bad:
        raise InputError("\n".join(bad))
    sizes = (EXPLORE_POINTS if explore else {}) | {name: int(text) for name, text in counts.items()}
    return wanted_axes(names, ends, sizes)


def _pairs(option: str, texts: list[str]) -> dict[str, str]:
    from sim.errors import InputError

    pairs = [text.partition("=") for text in texts]
    bad = [name for name, equals, value in pairs if not equals or not value]
    if bad:
        raise InputError(f"{option}: {', '.join(bad)} is not AXIS=VALUE, as in load=4/s")
    return {name.strip(): value.strip() for name, _, value in pairs}


def _build(scenario: Scenario, wanted: list[Wanted], refine: int, jobs: int | None) -> Map:
    """Build with a progress bar on stderr."""
    from sim.map.make import build
    from sim.progress import progress

    with progress("points") as tell:
        return build(scenario, wanted, refine, jobs or _cores(), tell)


def _cores() -> int:
    import os

    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _print(found: Map) -> None:
    from rich.console import Console

    from sim.map.table import summary, tables

    console = Console()
    console = console if console.is_terminal else Console(width=max(console.width, 130))
    for table in tables(found):
        console.print(table, highlight=False, markup=False)
    for line in summary(found):
        console.print(line, style="dim", highlight=False, markup=False)


def _write(found: Map, out: Path) -> None:
    """Everything in the folder; pictures only where the ``report`` extra is installed."""
    from sim.files import write_whole
    from sim.map import explorer, file, picture, table

    file.write(out / "map.json", found)
    write_whole(out / "map.md", table.markdown(found))
    write_whole(out / "explorer.html", explorer.page(found))
    names, note = ["map.json", "map.md", "explorer.html"], ""
    if len(found.axes) <= 2 and picture.available():
        names += picture.write(found, out)
    elif len(found.axes) <= 2:
        note = "; install leadline[report] for map.svg, map.png and map.html"
    typer.echo(f"{', '.join(names)} are in {out}{note}", err=True)
