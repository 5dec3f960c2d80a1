"""``leadline report``: a finished run as a page to read, or as Markdown, JSON or pictures."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sim.command import single_command

if TYPE_CHECKING:
    from sim.map.model import Map
    from sim.report.model import Report

app = single_command("Write a run's report: verdict, charts, tables, provenance.")


class Format(Enum):
    """What the report is written as."""

    html = "html"
    md = "md"
    json = "json"
    png = "png"


@app.callback()
def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder that `leadline run --out` made.")],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="FILE", help="Where to (default: in RUN). For png a folder; - prints md or json."
        ),
    ] = None,
    form: Annotated[Format, typer.Option("--format", help="What to write.")] = Format.html,
    explorer: Annotated[
        Path | None,
        typer.Option("--map", metavar="FILE", help="A map.json of `leadline map`, shown as an explorer."),
    ] = None,
) -> None:
    """Write the report of a run."""
    from sim.errors import InputError
    from sim.report.assemble import build
    from sim.sweep import open_results

    if explorer is not None and form is not Format.html:
        raise InputError("--map goes with --format html: the explorer is a page")
    place = out or run / _DEFAULT[form]
    if form is Format.png and place.is_file():
        raise InputError(f"{place}: is a file; pictures go into a folder")
    built = build(open_results(run))
    if str(out) == "-":
        typer.echo(_text(built, form, None), nl=False)
        return
    written = write(built, form, place, explorer)
    typer.echo(f"wrote {written}", err=True)


_DEFAULT = {
    Format.html: "report.html",
    Format.md: "report.md",
    Format.json: "report.json",
    Format.png: "pictures",
}


def write(built: Report, form: Format, out: Path, explorer: Path | None = None) -> Path:
    """Write a report, whole or not at all; pictures go into the folder ``out``, one per chart."""
    from sim.files import write_whole

    if form is Format.png:
        from sim.report.pictures import png

        for key, data in png(built).items():
            write_whole(out / f"{key}.png", data)
        return out
    write_whole(out, _text(built, form, explorer))
    return out


def _text(built: Report, form: Format, explorer: Path | None) -> str:
    from sim.errors import InputError
    from sim.report.page import html
    from sim.report.plain import json, markdown

    if form is Format.md:
        return markdown(built)
    if form is Format.json:
        return json(built)
    if form is Format.png:
        raise InputError("pictures cannot be printed; give --out a folder")
    return html(built, _map(explorer))


def _map(path: Path | None) -> Map | None:
    if path is None:
        return None
    from sim.map import read

    return read(path)
