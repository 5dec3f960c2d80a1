"""``leadline validate``: run a real engine and the simulator on the same requests, and print the error.

Exit codes: 0 the rules hold, 1 they do not, 2 wrong options.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from calibrate.session import Options
    from calibrate.validate.plan import Size
    from calibrate.validate.reference import Finding

app = typer.Typer(
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Run a real engine and the simulator on the same requests, and print where they differ.",
)

FAILED = 1


@app.callback()
def validate(
    engine: Annotated[str, typer.Option(help="reference: our own engine, on this machine.")] = "reference",
    quick: Annotated[
        bool, typer.Option("--quick", help="About three minutes instead of up to thirty.")
    ] = False,
    model: Annotated[str, typer.Option(help="A preset of `leadline calibrate`.")] = "cpu-small",
    drafter: Annotated[str, typer.Option(help="One of the preset's drafters.")] = "draft",
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    seed: Annotated[int, typer.Option(min=0, help="Of requests, luck and weights.")] = 0,
    runs: Annotated[int | None, typer.Option(min=2, help="Engine runs per cell.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Print every metric.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write everything as JSON.")] = None,
) -> None:
    """Run a real engine and the simulator on the same requests, and print where they differ."""
    from sim.errors import InputError

    if engine != "reference":
        raise InputError(f"--engine {engine!r} is not an engine that can be run here; there is: reference")
    try:
        finding = _run(model, drafter, device, seed, quick, runs)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise InputError("validate needs torch: pip install 'leadline[calibrate]'") from None
    _show(finding, every, out)
    if not finding.verdict.passed:
        raise typer.Exit(FAILED)


def _run(model: str, drafter: str, device: str, seed: int, quick: bool, runs: int | None) -> Finding:
    from dataclasses import replace

    from calibrate.validate.plan import FULL, QUICK
    from calibrate.validate.reference import referee

    size = QUICK if quick else FULL
    size = size if runs is None else replace(size, runs=runs)
    options = _options(model, drafter, device, seed, size)
    with tempfile.TemporaryDirectory() as folder:
        return referee(options, size, _plan(drafter, options), seed, Path(folder), _err)


def _plan(drafter: str, options: Options) -> Any:
    from calibrate.validate.plan import ENGINE, LENGTHS, Plan

    return lambda profile: Plan(profile, drafter, options.sampling, dict(ENGINE), dict(LENGTHS))


def _options(model: str, drafter: str, device: str, seed: int, size: Size) -> Options:
    """The calibration's options: its first drafter, one CPU thread."""
    from calibrate.presets import PresetError, drafters_of, find_preset
    from calibrate.validate.grid import ServedOptions
    from calibrate.validate.plan import REACH
    from sim.errors import InputError

    if device not in ("cpu", "cuda"):
        raise InputError(f"--device {device!r} is not one of cpu, cuda")
    try:
        preset = find_preset(model)
        drafters = drafters_of(preset, [drafter])
    except PresetError as error:
        raise InputError(str(error)) from None
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
        reach=REACH,
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
