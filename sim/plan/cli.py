"""``leadline plan``: how many replicas a peak takes under an objective, policy by policy."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sim.command import single_command

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sim.fleet.config import RouterName
    from sim.plan.answer import Question
    from sim.plan.money import Prices
    from sim.plan.plan import Plan
    from sim.plan.what_if import Case
    from sim.scenario.load import Loaded

app = single_command(
    "How many replicas your peak takes, under each policy. Exit code 1: no policy meets the objective."
)


@app.callback()
def plan(
    scenario: Annotated[
        str, typer.Argument(metavar="FILE_OR_NAME", help="A scenario file, or a shipped scenario's name.")
    ],
    peak: Annotated[
        str | None, typer.Option(metavar="RATE", help="Peak rate, as 40/s; default: the scenario's highest.")
    ] = None,
    slo: Annotated[
        list[str] | None,
        typer.Option(metavar="LIMIT", help="As ttft_p99=500ms, tpot_p95=40ms, e2el_mean=9s; repeatable."),
    ] = None,
    goodput: Annotated[
        str | None,
        typer.Option(metavar="SHARE", help="Share of requests within the scenario's slo; 95% if no --slo."),
    ] = None,
    profile: Annotated[
        list[str] | None, typer.Option(help="Compare these profiles (GPUs, parallel degrees, precisions).")
    ] = None,
    drafter: Annotated[list[str] | None, typer.Option(help="Compare these drafters.")] = None,
    policies: Annotated[
        str | None, typer.Option(help="Only these policies: labels, separated by commas.")
    ] = None,
    router: Annotated[
        str, typer.Option(help="round_robin, least_requests or power_of_two.")
    ] = "least_requests",
    price: Annotated[
        list[str] | None, typer.Option(metavar="PRICE", help="Of a GPU hour: 2.5, or PROFILE=2.5 for one.")
    ] = None,
    watts: Annotated[
        list[str] | None, typer.Option(metavar="WATTS", help="A GPU's power: 700, or PROFILE=700 for one.")
    ] = None,
    gpus_per_replica: Annotated[
        int | None, typer.Option(min=1, help="GPUs of one replica; default: the profile's.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, max=100, help="How many seeds.")] = 5,
    requests: Annotated[int, typer.Option(min=50, help="Least requests of one run.")] = 1000,
    check: Annotated[
        bool, typer.Option("--check", help="Try the highest rate, and 1.1 times it, with other seeds.")
    ] = False,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, help="Worker processes; default: one per core. No answer depends on it."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(dir_okay=False, help="Write it, too: .md is Markdown, .json data.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Find each policy's highest rate on one replica, and the smallest fleet that serves the peak."""
    from sim.plan.answer import Question
    from sim.plan.money import Prices, by_profile
    from sim.plan.objective import objective
    from sim.plan.what_if import cases, chosen
    from sim.scenario.load import find_scenario

    _check_out(out)
    path = find_scenario(scenario)
    loaded = chosen(path, seeds, policies)
    planned = cases(loaded, path, profile or (), drafter or ())
    names = tuple(dict.fromkeys(case.profile for case in planned))
    asked = objective(loaded.scenario, slo or (), goodput)
    question = Question(asked, _peak(loaded, peak), _router(router), requests, check)
    prices = Prices(
        by_profile("--price", price or (), names),
        by_profile("--watts", watts or (), names),
        gpus_per_replica,
    )
    found = _make(loaded, planned, question, prices, jobs)
    _show(found, out, as_json)
    if found.best is None:
        raise typer.Exit(1)


def _check_out(out: Path | None) -> None:
    """Refuse a file that could not be written before anything is simulated."""
    from tempfile import TemporaryFile

    from sim.errors import InputError

    if out is None:
        return
    if out.suffix not in (".md", ".json"):
        raise InputError(f"--out {str(out)!r}: give a name that ends in .md or .json")
    if not out.parent.is_dir():
        raise InputError(f"--out {str(out)!r}: there is no folder {str(out.parent)!r}")
    try:
        with TemporaryFile(dir=out.parent):
            pass
    except OSError as error:
        raise InputError(f"--out {str(out)!r}: cannot be written ({error.strerror})") from None


def _peak(loaded: Loaded, stated: str | None) -> float:
    """The stated peak, or the highest rate of any cell."""
    from sim.errors import InputError
    from sim.plan.traffic import peak_of
    from sim.units import parse_rate_per_s

    if stated is None:
        return max(peak_of(cell.scenario) for cell in loaded.cells)
    try:
        rate = parse_rate_per_s(stated)
    except ValueError as error:
        raise InputError(f"--peak: {error}") from None
    if rate <= 0:
        raise InputError(f"--peak {stated!r} must be above 0; write for example 40/s")
    return rate


def _router(name: str) -> RouterName:
    from sim.errors import InputError
    from sim.fleet.routers import ROUTERS
    from sim.scenario.words import did_you_mean

    for known in ROUTERS:
        if name == known:
            return known
    raise InputError(f"--router: none is called {name!r}{did_you_mean(name, ROUTERS)}")


def _make(
    loaded: Loaded, planned: Sequence[Case], question: Question, prices: Prices, jobs: int | None
) -> Plan:
    """Plan with a progress bar on stderr."""
    from sim.plan.plan import make_plan
    from sim.plan.what_if import notes
    from sim.progress import progress

    with progress(f"planning {loaded.scenario.name}", time_left=False) as tell:
        return make_plan(
            loaded.scenario.name,
            planned,
            question,
            prices,
            jobs or _cores(),
            tell,
            notes(loaded, planned),
        )


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _show(plan: Plan, out: Path | None, as_json: bool) -> None:
    """Print the plan, and write it where a file is named."""
    from rich.console import Console

    from calibrate.profile import write_atomically
    from sim.errors import InputError
    from sim.plan.report import data, markdown, render
    from sim.results.store import json_text

    if as_json:
        typer.echo(json_text(data(plan)), nl=False)
    else:
        console = Console(highlight=False, markup=False)
        console = console if console.is_terminal else Console(width=120, highlight=False, markup=False)
        console.print(render(plan))
    if out is not None:
        text = markdown(plan) if out.suffix == ".md" else json_text(data(plan))
        try:
            write_atomically(out, text)
        except OSError as error:
            raise InputError(f"--out {str(out)!r}: cannot be written ({error.strerror})") from None
        typer.echo(f"wrote {out}", err=True)
