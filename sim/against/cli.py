"""``leadline against`` and ``leadline fit``: a user's own measurements beside the simulator.

``against`` is a plain function with Typer's annotations, so that another command may take it over.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import RenderableType

    from sim.against.bench import Bench

_SETTINGS = {"allow_interspersed_args": True}
"""A group takes its arguments before its options unless it is told otherwise."""

against_app = typer.Typer(
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings=_SETTINGS,
    help="Compare your own benchmark results with the simulator, and say what a difference points to.",
)
fit_app = typer.Typer(
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings=_SETTINGS,
    help="Adjust a few parameters to your own benchmark results; reports the error on results held out.",
)

Files = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="FILE...", help="Results of vLLM bench, AIPerf, GuideLLM, inference-perf, or CSV."
    ),
]
ScenarioName = Annotated[
    str, typer.Option("--scenario", help="Profile, drafter, acceptance, engine and policy: file or name.")
]
Policy = Annotated[
    str | None, typer.Option("--policy", help="Label of the policy that was measured (default: by depth).")
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="A value of the scenario, as engine.max_num_seqs=64."),
]
Concurrency = Annotated[int | None, typer.Option(min=1, help="Requests in flight, where a file lacks it.")]
Rate = Annotated[float | None, typer.Option(min=1e-6, help="Requests per second, where a file lacks it.")]
Poisson = Annotated[bool, typer.Option("--poisson", help="Gaps are exponential (inference-perf).")]
Json = Annotated[bool, typer.Option("--json", help="Print everything as JSON.")]


@against_app.callback()
def against(
    files: Files = None,
    scenario: ScenarioName = "",
    policy: Policy = None,
    settings: Set = None,
    seeds: Annotated[int, typer.Option(min=1, max=100, help="Simulations of each run.")] = 3,
    concurrency: Concurrency = None,
    rate: Rate = None,
    poisson: Poisson = False,
    own_workload: Annotated[
        bool, typer.Option("--own-workload", help="Send the scenario's requests, not the file's.")
    ] = False,
    wide: Annotated[bool, typer.Option("--wide", help="Every metric.")] = False,
    as_json: Json = False,
) -> None:
    """Simulate what was measured, print both, and say which parameter the difference points to."""
    with _messages():
        bench = _bench(files, scenario, policy, settings, seeds, (concurrency, rate, poisson), own_workload)
        from sim.against.diagnose import diagnose
        from sim.against.report import comparison, comparison_data, verdicts

        if as_json:
            typer.echo(json.dumps(comparison_data(bench, diagnose(bench)), indent=2))
            return
        _print(comparison(bench, wide))
        _print(verdicts(diagnose(bench)))


@fit_app.callback()
def fit(
    files: Files = None,
    more: Annotated[
        list[Path] | None, typer.Option("--against", metavar="FILE", help="The same as FILE...")
    ] = None,
    scenario: ScenarioName = "",
    out: Annotated[
        Path | None, typer.Option(dir_okay=False, help="The adjusted scenario; a profile goes beside it.")
    ] = None,
    adjust: Annotated[
        str | None,
        typer.Option(help="Of overhead, verify, draft, acceptance (default: what the runs can tell)."),
    ] = None,
    policy: Policy = None,
    settings: Set = None,
    seeds: Annotated[int, typer.Option(min=1, max=100, help="Simulations of each run.")] = 2,
    concurrency: Concurrency = None,
    rate: Rate = None,
    poisson: Poisson = False,
    as_json: Json = False,
) -> None:
    """Fit on every second load, report the error on the others, write the adjusted scenario."""
    with _messages():
        given = [*(more or []), *(files or [])]
        bench = _bench(given, scenario, policy, settings, seeds, (concurrency, rate, poisson), False)
        from sim.against.fit import fit as fit_runs
        from sim.against.report import fit_data, fitted
        from sim.against.write import write
        from sim.scenario.load import find_scenario

        found = fit_runs(bench, adjust.split(",") if adjust else None)
        if as_json:
            typer.echo(json.dumps(fit_data(found), indent=2))
        else:
            _print(fitted(found))
        if out is not None:
            for path in write(found, find_scenario(scenario), out, f"leadline {shlex.join(sys.argv[1:])}"):
                typer.echo(f"wrote {path}", err=True)


def _bench(
    files: list[Path] | None,
    scenario: str,
    policy: str | None,
    settings: list[str] | None,
    seeds: int,
    load: tuple[int | None, float | None, bool],
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


@contextmanager
def _messages() -> Iterator[None]:
    """Errors of the user's become messages with exit code 2."""
    from calibrate.profile import ProfileError
    from sim.errors import InputError

    try:
        yield
    except (InputError, ProfileError) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from None
