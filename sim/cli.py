"""The command line: turns the library's errors into messages and exit codes, and prints.

Exit codes: 0 done, 1 lints under ``--strict``, 2 the user's input is wrong, 130 interrupted.
Everything heavy is imported inside the commands, so that ``leadline --help`` answers at once.
"""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

if TYPE_CHECKING:
    from rich.console import Console

    from sim.results.compare import Comparison
    from sim.scenario.load import Loaded
    from sim.scenario.model import Scenario
    from sim.sweep.execute import Kind
    from sim.sweep.results import Results


class _Group(TyperGroup):
    """Reports errors raised on purpose without a traceback."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command; an error of the user's becomes a message on stderr and exit code 2."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            typer.echo("interrupted", err=True)
            raise typer.Exit(130) from None
        except Exception as error:
            if not _on_purpose(error):
                raise
            typer.echo(str(error), err=True)
            raise typer.Exit(2) from None


def _on_purpose(error: Exception) -> bool:
    from calibrate.profile import ProfileError
    from sim.errors import InputError

    return isinstance(error, InputError | ProfileError)


app = typer.Typer(
    cls=_Group,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="How deep should you speculate? Replay your traffic against measured step costs.",
)


def main() -> None:
    """Entry point of the ``leadline`` command."""
    add_commands()
    app(prog_name="leadline")


def add_commands() -> None:
    """Add the commands of other packages (entry points ``leadline.commands``, each a Typer app)."""
    from importlib.metadata import entry_points

    for entry in sorted(entry_points(group="leadline.commands"), key=lambda entry: entry.name):
        app.add_typer(entry.load(), name=entry.name)


def _version() -> str:
    from sim import __version__

    return f"leadline {__version__}"


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(_version())
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version.")
    ] = False,
) -> None:
    pass


class Where(Enum):
    """Where the workers of a sweep are: processes of this machine, or a Ray cluster."""

    local = "local"
    ray = "ray"

    @property
    def kind(self) -> Kind:
        """The name in ``sim.sweep.execute``."""
        return "ray" if self is Where.ray else "local"


Named = Annotated[
    str, typer.Argument(metavar="FILE_OR_NAME", help="A scenario file, or a shipped scenario's name.")
]


@app.command()
def version() -> None:
    """Show the version."""
    typer.echo(_version())


@app.command()
def check(
    scenario: Named,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 if there is a warning.")] = False,
) -> None:
    """Say everything that is wrong with a scenario, or doubtful about it; run nothing."""
    from sim.scenario.load import find_scenario, read_scenario

    loaded = read_scenario(find_scenario(scenario))
    warnings = _warn(loaded)
    _try_inputs(loaded)
    count = len(loaded.cells)
    runs = count * len(loaded.scenario.policies) * len(loaded.scenario.run.seeds)
    counts = ", ".join(_counted(*each) for each in ((count, "cell"), (runs, "run"), (warnings, "warning")))
    typer.echo(f"{loaded.scenario.name}: {counts}")
    if strict and warnings:
        raise typer.Exit(1)


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _try_inputs(loaded: Loaded) -> None:
    """Draw the requests and acceptance of every cell once, so that a bad row of any file shows."""
    from sim.sweep.prepare import prepare

    for cell in loaded.cells:
        prepare(cell.scenario, cell.scenario.policies[-1], cell.scenario.run.seeds[0])


def _warn(loaded: Loaded) -> int:
    """Print the lints of a scenario on stderr; returns how many there are."""
    from sim.scenario.lint import lint

    lints = lint(loaded)
    for each in lints:
        typer.echo(f"warning: {each}", err=True)
    return len(lints)


@app.command()
def schema() -> None:
    """Print the JSON Schema of scenario files, for editors that complete and check YAML."""
    import json

    from sim.scenario.schema import scenario_schema

    typer.echo(json.dumps(scenario_schema(), indent=2))


@app.command()
def scenarios(
    destination: Annotated[
        Path | None, typer.Argument(metavar="[DEST]", help="With --copy: where to.")
    ] = None,
    copy: Annotated[
        str | None, typer.Option("--copy", metavar="NAME", help="Write this one out to edit.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
) -> None:
    """List the scenarios that ship with leadline, or write one out."""
    from sim.errors import InputError
    from sim.scenario.catalogue import copy_scenario, described

    if copy is None and (destination is not None or force):
        raise InputError("DEST and --force go with --copy NAME; name the scenario to copy")
    if copy is not None:
        typer.echo(f"wrote {copy_scenario(copy, destination, force)}")
        return
    _lines(described("scenario"))


@app.command()
def policies(
    name: Annotated[str | None, typer.Argument(help="Explain this one: rule, source, parameters.")] = None,
) -> None:
    """List the depth policies, or explain one."""
    from sim.policies.explain import explain, summaries

    if name is None:
        _lines(summaries())
    else:
        _output().print(explain(name), highlight=False, markup=False)


def _lines(described: dict[str, str]) -> None:
    width = max(map(len, described), default=0)
    for name, text in described.items():
        typer.echo(f"{name:{width}}  {text}".rstrip())


@app.command()
def run(
    scenario: Named,
    seed: Annotated[int | None, typer.Option(min=0, help="First seed.")] = None,
    seeds: Annotated[int | None, typer.Option(min=1, max=1000, help="How many seeds.")] = None,
    precision: Annotated[
        str | None,
        typer.Option(help="Stop the seeds of a cell when its leaders are known to, for example, 2%."),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, help="Worker processes; default: one per core. No result depends on it."),
    ] = None,
    executor: Annotated[Where, typer.Option(help="Where the workers are.")] = Where.local,
    out: Annotated[
        Path | None,
        typer.Option(file_okay=False, help="Results folder; runs that it holds are not made again."),
    ] = None,
    shard: Annotated[
        str | None,
        typer.Option(metavar="I/N", help="Make the I-th of N shares of the runs into --out; compare later."),
    ] = None,
    policies: Annotated[
        str | None, typer.Option(help="Only these policies: labels, separated by commas.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="One seed and at most 300 requests.")] = False,
    wide: Annotated[bool, typer.Option("--wide", help="Every column.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
    report: Annotated[bool, typer.Option("--report", help="Write report.html into --out.")] = False,
) -> None:
    """Replay a scenario under its policies and say which is best at each load."""
    from sim.errors import InputError
    from sim.scenario.choose import Choice, read_chosen
    from sim.scenario.load import find_scenario

    if out is None and (shard or report):
        raise InputError(f"{'--shard' if shard else '--report'} writes into a results folder; add --out DIR")
    if report:
        from sim.report.vega import check_extra

        check_extra()
    if shard and (report or wide or as_json):
        raise InputError("--shard makes runs and compares nothing: leave out --report, --wide and --json")
    loaded = read_chosen(find_scenario(scenario), Choice(seed, seeds, policies, quick, precision))
    _warn(loaded)
    workers = jobs or _cores()
    if shard is not None and out is not None:
        _run_shard(loaded.scenario, shard, out, workers, executor)
        return
    results = _run(loaded.scenario, workers, out, executor, wide, as_json)
    _conclude(results, out, as_json)
    if report and out is not None:
        _report(results, out)


def _cores() -> int:
    import os

    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _run(
    scenario: Scenario, jobs: int, out: Path | None, executor: Where, wide: bool, as_json: bool
) -> Results:
    """Run with a progress bar, printing the tables of each load as soon as it is done."""
    from sim.progress import progress
    from sim.results.terminal import tables
    from sim.sweep.run import run_scenario

    output = _output()

    def show(cell: Comparison) -> None:
        if not as_json:
            output.print(tables(cell, wide=wide, width=output.width))

    with progress(scenario.name) as tell:
        return run_scenario(scenario, jobs, out, tell, show, executor.kind)


def _run_shard(scenario: Scenario, shard: str, out: Path, jobs: int, executor: Where) -> None:
    from sim.errors import InputError
    from sim.progress import progress
    from sim.sweep.run import run_shard

    part, _, parts = shard.partition("/")
    if not (part.isdecimal() and parts.isdecimal()):
        raise InputError(f"--shard {shard}: write I/N, for example 1/4")
    with progress(f"{scenario.name} {shard}") as tell:
        found = run_shard(scenario, int(part), int(parts), out, jobs, tell, executor.kind)
    typer.echo(f"shard {shard}: {_counted(found.made, 'run')} made, {found.present} there before", err=True)
    typer.echo(f"run without --shard when all shards are done: --out {out}", err=True)


def _output() -> Console:
    """Standard output, at least 100 columns wide where it is no terminal."""
    from rich.console import Console

    console = Console()
    return console if console.is_terminal else Console(width=max(console.width, 110))


def _conclude(results: Results, out: Path | None, as_json: bool) -> None:
    """Print the verdicts (or the whole summary as JSON); write ``summary.json`` where a folder is given."""
    from sim.results.store import json_text
    from sim.results.terminal import verdicts
    from sim.sweep.saved import save

    if out is not None:
        save(results, out)
    if as_json:
        typer.echo(json_text(results.summary()), nl=False)
    else:
        _output().print(verdicts(results.comparison))
        _output().print(_basis(results.about), style="dim", highlight=False)
    for warning in results.warnings:
        typer.echo(f"warning: {warning}", err=True)
    if out is not None:
        there = len(results.runs) - results.made
        before = f"; {there} of {_counted(len(results.runs), 'run')} were there before" if there else ""
        typer.echo(f"records and summary.json are in {out}{before}", err=True)


def _report(results: Results, out: Path) -> None:
    from sim.files import write_whole
    from sim.report import build, html

    write_whole(out / "report.html", html(build(results)))
    typer.echo(f"wrote {out / 'report.html'}", err=True)


def _basis(about: dict[str, Any]) -> str:
    """What the numbers stand on, in one or two lines."""
    costs = ", ".join(
        f"{p['name']} ({p['kind']}{', ±{:.0%}'.format(p['error']['relative']) if p['error'] else ''})"
        for p in about["profiles"]
    )
    drafters = ", ".join(name or "none" for name in about["drafters"])
    accepted, engines = ", ".join(about["acceptance"]), ", ".join(about["engines"])
    first = f"step costs: {costs}; drafter: {drafters}; acceptance as stated: {accepted}; engine: {engines}"
    return "\n".join([first, *(f"assumed: {text}" for text in about["assumptions"])])


if __name__ == "__main__":
    main()
