"""``leadline trace``: a run for a trace viewer, its requests for load generators, and theirs for us."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

if TYPE_CHECKING:
    from sim.scenario.model import Cell
    from sim.trace.perfetto import Excerpt
    from sim.trace.source import Source
    from sim.workload.requests import Requests

_DEFAULT = "view"


class _Group(TyperGroup):
    """Takes ``leadline trace RUN`` for ``leadline trace view RUN``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Name the default command where none is."""
        if args and args[0] not in self.commands and args[0] not in ("--help", "-h"):
            args = [_DEFAULT, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_Group,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="A run for Perfetto; its requests for load generators.",
)

Named = Annotated[
    str, typer.Argument(metavar="RUN_OR_SCENARIO", help="A results folder, a scenario file or its name.")
]
CellLabel = Annotated[str | None, typer.Option("--cell", help="Load; default: the first.")]
Seed = Annotated[int | None, typer.Option(min=0, help="Default: the first.")]


@app.command()
def view(
    source: Named,
    out: Annotated[Path, typer.Option(dir_okay=False, help="File to write.")] = Path("trace.json"),
    cell: CellLabel = None,
    policy: Annotated[str | None, typer.Option(help="Policy; default: the last.")] = None,
    seed: Seed = None,
    start: Annotated[float, typer.Option("--from", min=0, help="From this second of the run.")] = 0.0,
    end: Annotated[float | None, typer.Option("--to", min=0, help="To this second.")] = None,
    most: Annotated[int, typer.Option("--most", min=100, help="Most events written.")] = 500_000,
) -> None:
    """Write one run as a Chrome JSON trace for ui.perfetto.dev: requests, steps, counters."""
    from sim.errors import InputError
    from sim.trace.perfetto import ends_ns, excerpt, write_perfetto
    from sim.trace.source import open_source
    from sim.units import NS_PER_S

    if end is not None and end <= start:
        raise InputError(f"--to {end:g} does not come after --from {start:g}")
    opened = open_source(source)
    where = opened.cell(cell)
    which, number = opened.policy(where, policy), opened.seed(where, seed)
    records = opened.records(where, which, number)
    last_s = ends_ns(records) / NS_PER_S
    if start and start >= last_s:
        raise InputError(f"--from {start:g}: the run ends at {last_s:.3f} s")
    end_ns = None if end is None else round(end * NS_PER_S)
    found = excerpt(records, round(start * NS_PER_S), end_ns, most)
    about = {"scenario": opened.scenario.name, "load": where.label, "policy": which.title, "seed": number}
    write_perfetto(out, found, about)
    typer.echo(_written(out, found))


def _written(out: Path, found: Excerpt) -> str:
    from sim.units import NS_PER_S

    text = f"wrote {out}: {found.requests} requests, {found.steps} steps, {len(found.events)} events"
    if found.cut_ns is None:
        return text
    at = found.cut_ns / NS_PER_S
    return f"{text}; cut at {at:.3f} s of the run, where --most was reached: choose --from and --to"


@app.command()
def requests(
    source: Named,
    out: Annotated[Path, typer.Option(dir_okay=False, help="File to write.")],
    form: Annotated[
        str, typer.Option("--format", help="mooncake, vllm, aiperf, guidellm or leadline.")
    ] = "mooncake",
    cell: CellLabel = None,
    policy: Annotated[
        str | None, typer.Option(help="Times at which this policy's run sent them; default: as intended.")
    ] = None,
    seed: Seed = None,
    block: Annotated[int, typer.Option(min=1, help="Tokens of a hashed block.")] = 512,
) -> None:
    """Write a run's requests as a trace that vLLM bench, AIPerf or GuideLLM replays."""
    from sim.trace.requests import write_requests
    from sim.trace.source import open_source

    opened = open_source(source)
    where = opened.cell(cell)
    sent = _requests(opened, where, policy, opened.seed(where, seed))
    command = write_requests(out, sent, form, block)
    typer.echo(f"wrote {out}: {len(sent)} requests")
    typer.echo(command)


def _requests(opened: Source, where: Cell, policy: str | None, seed: int) -> Requests:
    """The requests as drawn, or as one policy's run sent them."""
    from sim.trace.sent import as_sent
    from sim.workload.build import build_requests

    drawn = build_requests(where.scenario.workload, seed, where.scenario.locate)
    if policy is None:
        return drawn
    return as_sent(drawn, opened.records(where, opened.policy(where, policy), seed))


@app.command(name="import")
def import_(
    file: Annotated[Path, typer.Argument(help="Result of vllm bench serve, AIPerf or GuideLLM.")],
    out: Annotated[Path, typer.Option(dir_okay=False, help="Trace to write.")],
    number: Annotated[int, typer.Option("--run", min=1, help="Which run of the file.")] = 1,
    concurrency: Annotated[
        int | None, typer.Option(min=1, help="Clients, where the file does not say.")
    ] = None,
    rate: Annotated[
        float | None, typer.Option(min=1e-9, help="Requests/s, where the file does not say.")
    ] = None,
) -> None:
    """Turn the requests that a benchmark recorded into a trace for a scenario."""
    from sim.against.readers import read_file, stated_load
    from sim.against.workload import requests_of
    from sim.errors import InputError
    from sim.trace.requests import setting
    from sim.workload.traces import write_trace

    runs = read_file(file, stated_load(concurrency, rate))
    if number > len(runs):
        raise InputError(f"--run {number}: {file} has {len(runs)}")
    run = runs[number - 1]
    if not run.lengths_recorded:
        raise InputError(f"{run.place}: has no lengths of single requests; record them (--save-detailed)")
    write_trace(out, requests_of(run, seed=0))
    times = "" if run.sent_s or run.load.rate_per_s is None else "; arrivals were not recorded and are drawn"
    typer.echo(f"wrote {out}: {len(run.output)} requests at {run.load.label}{times}")
    typer.echo(setting(out.name))
