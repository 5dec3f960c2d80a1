"""``leadline acceptance``: fit an acceptance process to what you have, and export one to an engine."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

if TYPE_CHECKING:
    from sim.acceptance.config import AcceptanceConfig
    from sim.acceptance.fit.evidence import Evidence
    from sim.acceptance.fit.readers import Stated


class _Group(TyperGroup):
    """Reports errors of the user's without a traceback, with exit code 2."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        from sim.errors import InputError

        try:
            return super().invoke(ctx)
        except InputError as error:
            typer.echo(str(error), err=True)
            raise typer.Exit(2) from None


app = typer.Typer(
    cls=_Group,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Fit an acceptance process to logs, counters or traces; export one to an engine.",
)

Depth = Annotated[int | None, typer.Option("--depth", "-k", min=1, max=255, help="Drafts per round.")]


@app.command()
def fit(
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="[FILE]...", help="Files of one kind; see 'formats'.")
    ] = None,
    form: Annotated[
        str | None, typer.Option("--format", help="Read files as this (default: by content).")
    ] = None,
    depth: Depth = None,
    mean_length: Annotated[
        float | None,
        typer.Option("--mean-length", min=1, help="Tokens per round, bonus included; with --depth."),
    ] = None,
    rates: Annotated[
        str | None,
        typer.Option("--rates", help="Rates by position, such as .68,.47,.33 (accepted / rounds)."),
    ] = None,
    conditional: Annotated[
        bool, typer.Option("--conditional", help="--rates are given that earlier drafts were accepted.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Fit a process to what was measured, and say how far it is off on what it has not seen."""
    from sim.acceptance.fit.choose import fit as fit_all
    from sim.acceptance.fit.readers import Stated
    from sim.acceptance.fit.report import as_data, block, render, section

    seen = _evidence(files or [], form, depth, mean_length, rates, conditional)
    if isinstance(seen, Stated):
        text = json.dumps({"acceptance": section(seen.config)}, indent=2) if as_json else block(seen.config)
        typer.echo(text)
        return
    found = fit_all(seen)
    if as_json:
        typer.echo(json.dumps(as_data(found), indent=2))
    else:
        _print(render(found))


def _print(*things: Any) -> None:
    from rich.console import Console

    console = Console(width=None if sys.stdout.isatty() else 110, highlight=False, markup=False)
    for thing in things:
        console.print(thing, soft_wrap=False)


def _evidence(
    files: list[Path],
    form: str | None,
    depth: int | None,
    mean_length: float | None,
    rates: str | None,
    conditional: bool,
) -> Evidence | Stated:
    from sim.acceptance.fit.evidence import Evidence
    from sim.acceptance.fit.readers import FORMATS, read_files
    from sim.acceptance.fit.tables import group_of_length, group_of_rates
    from sim.errors import InputError

    if (bool(files), mean_length is not None, rates is not None).count(True) != 1:
        raise InputError("give files, or --mean-length with --depth, or --rates; one of the three")
    if form is not None and form not in FORMATS:
        raise InputError(f"--format is {form!r}; it must be one of {', '.join(FORMATS)}")
    if mean_length is not None:
        return Evidence("--mean-length", counted=(group_of_length("--mean-length", mean_length, depth),))
    if rates is not None:
        return Evidence(
            "--rates", counted=(group_of_rates("--rates", _numbers(rates), conditional=conditional),)
        )
    return read_files(files, form, depth)


def _numbers(text: str) -> list[float]:
    from sim.errors import InputError

    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"--rates is {text!r}; write numbers with commas, such as .68,.47,.33") from None


@app.command()
def formats() -> None:
    """List the formats that fit reads."""
    from sim.acceptance.fit.readers import FORMATS

    for name, about in FORMATS.items():
        typer.echo(f"{name:<15} {about}")


@app.command()
def export(
    source: Annotated[
        str,
        typer.Argument(
            metavar="FILE_OR_SCENARIO", help="A scenario, or a file with acceptance:, such as fit prints."
        ),
    ],
    depth: Annotated[int, typer.Option("--depth", "-k", min=1, max=255, help="num_speculative_tokens.")],
    engine: Annotated[str, typer.Option("--for", help="The engine: vllm.")] = "vllm",
) -> None:
    """Print what makes an engine accept drafts as the process does at one depth (vLLM's synthetic mode)."""
    from sim.acceptance.fit.synthetic import fields_of
    from sim.errors import InputError

    if engine != "vllm":
        raise InputError(f"--for is {engine!r}; only vllm has synthetic acceptance that is known here")
    config, locate = _stated(source)
    typer.echo(json.dumps(fields_of(_survival(config, locate, depth))))


def _survival(config: AcceptanceConfig, locate: Callable[[str], Path], depth: int) -> list[float]:
    from sim.acceptance.build import build_process, expected_survival
    from sim.acceptance.config import TraceAcceptance
    from sim.acceptance.survey import Survey
    from sim.acceptance.trace import read_trace

    if not isinstance(config, TraceAcceptance):
        return [float(rate) for rate in expected_survival(config, depth)]
    process = build_process(config.model_copy(update={"assign": "in_order"}), 0, depth, locate)
    rows = read_trace(locate(config.path), config.span_key)
    runs = [process.path(i, 1, row.positions).run for i, row in enumerate(rows)]
    return [float(rate) for rate in Survey(runs).survival(depth)]


def _stated(source: str) -> tuple[AcceptanceConfig, Callable[[str], Path]]:
    """The acceptance that a scenario or a file states, and where its files are."""
    from sim.acceptance.fit.stated import acceptance_in
    from sim.errors import InputError
    from sim.scenario.load import find_scenario, load_scenario

    path = Path(source)
    found = acceptance_in(path) if path.is_file() else None
    if found is not None:
        return found, lambda name: path.parent / name
    scenario = load_scenario(find_scenario(source))
    chosen = next((config for config in scenario.acceptances if config is not None), None)
    if chosen is None:
        raise InputError(f"{source}: states no acceptance; add it, for example {{process: iid, alpha: 0.7}}")
    return chosen, scenario.locate_acceptance
