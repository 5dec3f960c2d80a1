"""``leadline fit``, and ``leadline validate --against``: a user's own measurements beside the simulator."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sim.command import single_command

if TYPE_CHECKING:
    from rich.console import RenderableType

    from sim.against.bench import Bench

fit_app = single_command(
    "Adjust a few parameters to your own benchmark results; reports the error on results held out."
)

_OWN = "Your own results (--against)"

Files = Annotated[
    list[Path] | None,
    typer.Option(
        "--against",
        metavar="FILE",
        help="A result of vLLM bench, AIPerf, GuideLLM, inference-perf, or CSV; may be repeated.",
        rich_help_panel=_OWN,
    ),
]
Policy = Annotated[
    str | None,
    typer.Option(
        "--policy", help="Label of the policy that was measured (default: by depth).", rich_help_panel=_OWN
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="PATH=VALUE",
        help="A value of the scenario, as engine.max_num_seqs=64.",
        rich_help_panel=_OWN,
    ),
]
Seeds = Annotated[int, typer.Option(min=1, max=100, help="Simulations of each run.", rich_help_panel=_OWN)]
Concurrency = Annotated[
    int | None, typer.Option(min=1, help="Requests in flight, where a file lacks it.", rich_help_panel=_OWN)
]
Rate = Annotated[
    float | None,
    typer.Option(min=1e-6, help="Requests per second, where a file lacks it.", rich_help_panel=_OWN),
]
Poisson = Annotated[
    bool,
    typer.Option("--poisson", help="Gaps are exponential (inference-perf).", rich_help_panel=_OWN),
]
OwnWorkload = Annotated[
    bool,
    typer.Option(
        "--own-workload", help="Send the scenario's requests, not the file's.", rich_help_panel=_OWN
    ),
]
Wide = Annotated[bool, typer.Option("--wide", help="Every metric.", rich_help_panel=_OWN)]
Json = Annotated[bool, typer.Option("--json", help="Print everything as JSON.", rich_help_panel=_OWN)]
Load = tuple[int | None, float | None, bool]
"""Concurrency, rate, and whether gaps are exponential: what a file may not say."""


def compare(
    files: list[Path],
    scenario: str,
    policy: str | None,
    settings: list[str] | None,
    seeds: int,
    load: Load,
    own_workload: bool,
    wide: bool,
    as_json: bool,
) -> None:
    """Simulate what was measured, print both, and say which parameter the difference points to."""
    from sim.against.diagnose import diagnose
    from sim.against.report import comparison, comparison_data, verdicts

    bench = _bench(files, scenario, policy, settings, seeds, load, own_workload)
    if as_json:
        typer.echo(json.dumps(comparison_data(bench, diagnose(bench)), indent=2))
        return
    _print(comparison(bench, wide))
    _print(verdicts(diagnose(bench)))


@fit_app.callback()
def fit(
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="FILE", help="The same as --against FILE.")
    ] = None,
    against: Files = None,
    scenario: Annotated[
        str, typer.Option("--scenario", help="Profile, drafter, acceptance, engine, policy: file or name.")
    ] = "",
    out: Annotated[
        Path | None, typer.Option(dir_okay=False, help="The adjusted scenario; a profile goes beside it.")
    ] = None,
    adjust: Annotated[
        str | None,
        typer.Option(help="Of overhead, verify, draft, acceptance (default: what the runs can tell)."),
    ] = None,
    policy: Policy = None,
    settings: Set = None,
    seeds: Seeds = 2,
    concurrency: Concurrency = None,
    rate: Rate = None,
    poisson: Poisson = False,
    as_json: Json = False,
) -> None:
    """Fit on every second load, report the error on the others, write the adjusted scenario."""
    from sim.against.fit import fit as fit_runs
    from sim.against.report import fit_data, fitted
    from sim.against.write import write
    from sim.scenario.load import find_scenario

    given = [*(against or []), *(files or [])]
    bench = _bench(given, scenario, policy, settings, seeds, (concurrency, rate, poisson), False)
    found = fit_runs(bench, adjust.split(",") if adjust else None)
    if as_json:
        typer.echo(json.dumps(fit_data(found), indent=2))
    else:
        _print(fitted(found))
    if out is not None:
        for path in write(found, find_scenario(scenario), out, f"leadline {shlex.join(sys.argv[1:])}"):
            typer.echo(f"wrote {path}", err=True)


def _bench(
    files: list[Path],
    scenario: str,
    policy: str | None,
    settings: list[str] | None,
    seeds: int,
    load: Load,
    own_workload: bool,
) -> Bench:
    from sim.against.bench import make_bench
    from sim.against.readers import read_files, stated_load, with_poisson
    from sim.errors import InputError
    from sim.scenario.load import find_scenario

    if not files:
        raise InputError("give at least one FILE with a benchmark's result")
    if not scenario:
        raise InputError("give --scenario: a file or name with profile, drafter, acceptance and engine")
    concurrency, rate, poisson = load
    runs = read_files(files, stated_load(concurrency, rate))
    runs = with_poisson(runs) if poisson else runs
    return make_bench(find_scenario(scenario), runs, _values(settings or []), policy, seeds, own_workload)


def _values(settings: list[str]) -> dict[str, Any]:
    """Plain values by dotted path, from ``PATH=VALUE`` with the value as in YAML."""
    from sim.errors import InputError
    from sim.scenario.nodes import parse_yaml

    found: dict[str, Any] = {}
    for text in settings:
        path, equals, value = text.partition("=")
        if not equals or not path:
            raise InputError(f"--set {text!r} is not PATH=VALUE, as in engine.max_num_seqs=64")
        found[path.strip()] = parse_yaml(value, f"--set {path}").data
    return found


def _print(things: Iterator[RenderableType]) -> None:
    from rich.console import Console

    console = Console(width=None if sys.stdout.isatty() else 110, highlight=False, markup=False)
    for thing in things:
        console.print(thing)
