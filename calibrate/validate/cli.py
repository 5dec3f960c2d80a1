"""``leadline validate``: the simulator beside an engine that runs here, or beside your own measurements.

Exit codes: 0 the rules hold (``--against``: all files are compared), 1 they do not, 2 wrong options or input.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from sim.against.cli import Concurrency, Files, Json, OwnWorkload, Poisson, Policy, Rate, Seeds, Set, Wide

if TYPE_CHECKING:
    from calibrate.session import Options
    from calibrate.validate.grid import Reach
    from calibrate.validate.plan import Load, Size
    from calibrate.validate.reference import Finding

app = typer.Typer(
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    subcommand_metavar="",
    help="Say where the simulator differs from an engine that runs here, or from your own benchmark results.",
)

FAILED: Final = 1
HERE: Final = "Without --against: an engine of our own serves the same requests"
OF_ENGINE: Final = ("engine", "quick", "model", "drafter", "device", "seed", "runs", "every", "out")
OF_AGAINST: Final = (
    *("policy", "settings", "seeds", "concurrency", "rate", "poisson", "own_workload", "wide", "as_json"),
)


@app.callback()
def validate(
    context: typer.Context,
    against: Files = None,
    scenario: Annotated[
        str,
        typer.Option(
            "--scenario",
            metavar="FILE_OR_NAME",
            help="What is served here (default: a small one of our own), or what the results are of.",
        ),
    ] = "",
    engine: Annotated[
        str, typer.Option(help="reference: our own engine, on this machine.", rich_help_panel=HERE)
    ] = "reference",
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="About three minutes instead of up to thirty (built-in).", rich_help_panel=HERE
        ),
    ] = False,
    model: Annotated[
        str, typer.Option(help="A preset of `leadline calibrate`.", rich_help_panel=HERE)
    ] = "cpu-small",
    drafter: Annotated[
        str, typer.Option(help="One of the preset's drafters.", rich_help_panel=HERE)
    ] = "draft",
    device: Annotated[str, typer.Option(help="cpu or cuda.", rich_help_panel=HERE)] = "cpu",
    seed: Annotated[
        int, typer.Option(min=0, help="Of requests, luck and weights.", rich_help_panel=HERE)
    ] = 0,
    runs: Annotated[
        int | None, typer.Option(min=2, help="Engine runs per cell.", rich_help_panel=HERE)
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Print every metric.", rich_help_panel=HERE)] = False,
    out: Annotated[Path | None, typer.Option(help="Write everything as JSON.", rich_help_panel=HERE)] = None,
    policy: Policy = None,
    settings: Set = None,
    seeds: Seeds = 3,
    concurrency: Concurrency = None,
    rate: Rate = None,
    poisson: Poisson = False,
    own_workload: OwnWorkload = False,
    wide: Wide = False,
    as_json: Json = False,
) -> None:
    """Say where the simulator differs from an engine that runs here, or from your own benchmark results."""
    from sim.against.cli import compare

    _check_mode(context, bool(against), engine)
    if against:
        load = (concurrency, rate, poisson)
        compare(against, scenario, policy, settings, seeds, load, own_workload, wide, as_json)
        return
    finding = _served(scenario, model, drafter, device, seed, quick, runs)
    _show(finding, every, out)
    if not finding.verdict.passed:
        raise typer.Exit(FAILED)


def _check_mode(context: typer.Context, against: bool, engine: str) -> None:
    """Refuse, all at once, what was given and belongs to the other kind of comparison."""
    from sim.errors import InputError

    foreign = OF_ENGINE if against else OF_AGAINST
    why = "is of the engine that runs here, without --against" if against else "goes with --against FILE"
    wrong = [f"{_flag(context, name)} {why}" for name in foreign if _given(context, name)]
    if engine != "reference" and not against:
        wrong.append(f"--engine {engine!r} is not an engine that can be run here; there is: reference")
    if wrong:
        raise InputError("\n".join(wrong))


def _given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _flag(context: typer.Context, name: str) -> str:
    return next(each.opts[0] for each in context.command.params if each.name == name)


# -- with the reference engine ---------------------------------------------------------------------


def _served(
    scenario: str, model: str, drafter: str, device: str, seed: int, quick: bool, runs: int | None
) -> Finding:
    """Everything that can be wrong is found before torch is needed and anything is timed."""
    from dataclasses import replace

    from calibrate.validate.plan import FULL, QUICK, Plan
    from sim.errors import InputError

    size = QUICK if quick else FULL
    size = size if runs is None else replace(size, runs=runs)
    loads, reach = _loads(scenario, size, seed)
    options = _options(model, drafter, device, seed, size, reach)
    try:
        from calibrate.validate.reference import referee
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise InputError("validate needs torch: pip install 'leadline[calibrate]'") from None
    with tempfile.TemporaryDirectory() as folder:
        return referee(options, size, lambda profile: Plan(profile, drafter, loads), seed, Path(folder), _err)


def _loads(scenario: str, size: Size, seed: int) -> tuple[tuple[Load, ...], Reach]:
    from calibrate.validate.plan import REACH, built_in
    from calibrate.validate.served import loads_of, reach_of
    from sim.scenario.load import find_scenario

    if not scenario:
        return built_in(size), REACH
    loads, notes = loads_of(find_scenario(scenario), size, seed)
    for note in notes:
        _err(note)
    return loads, reach_of(loads)


def _options(model: str, drafter: str, device: str, seed: int, size: Size, reach: Reach) -> Options:
    """The calibration's options: its first drafter, one CPU thread."""
    from calibrate.presets import PresetError, drafters_of, find_preset
    from calibrate.validate.grid import ServedOptions
    from calibrate.validate.served import check_models
    from sim.errors import InputError

    if device not in ("cpu", "cuda"):
        raise InputError(f"--device {device!r} is not one of cpu, cuda")
    try:
        preset = find_preset(model)
        drafters = drafters_of(preset, [drafter])
    except PresetError as error:
        raise InputError(str(error)) from None
    check_models(preset, drafters)
    return ServedOptions(
        name="validated",
        preset=preset,
        drafters=drafters,
        device=device,
        dtype={"cpu": "float32", "cuda": "bfloat16"}[device],
        threads=1,
        seed=seed,
        quick=size.quick,
        command=" ".join(["leadline", *sys.argv[1:]]),
        reach=reach,
        execution="cpu" if device == "cpu" else "eager",
    )


def _show(finding: Finding, every: bool, out: Path | None) -> None:
    from calibrate.validate.report import lines, write

    for line in lines(finding, every):
        typer.echo(line)
    if out is not None:
        write(finding, out)
        typer.echo(str(out))


def _err(text: str) -> None:
    typer.echo(text, err=True)
