"""``leadline profile``: look at profiles, compare and check them, and make them from others' numbers."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup


class _Group(TyperGroup):
    """Reports errors of the user's without a traceback, with exit code 2."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        from calibrate.configs import ShapeError
        from calibrate.profile import ProfileError

        try:
            return super().invoke(ctx)
        except (ProfileError, ShapeError) as error:
            typer.echo(str(error), err=True)
            raise typer.Exit(2) from None


app = typer.Typer(
    cls=_Group,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Look at cost profiles, compare them, check them, and import others' measurements.",
)

Named = Annotated[str, typer.Argument(metavar="PROFILE", help="A shipped profile's name, or a file.")]
Context = Annotated[int, typer.Option("--context", min=0, help="KV tokens per sequence.")]
OfDrafter = Annotated[str | None, typer.Option("--drafter", help="Which drafter (default: the first).")]


def _print(*things: Any) -> None:
    from rich.console import Console

    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False, markup=False)
    for thing in things:
        console.print(thing)


@app.command("list")
def list_(
    folder: Annotated[
        Path | None, typer.Argument(help="A folder of profiles (default: the shipped ones).")
    ] = None,
) -> None:
    """List profiles: target, device, kind, drafters and stated error."""
    from calibrate.profile_view import listing, shipped

    paths = shipped() if folder is None else {path.stem: path for path in sorted(folder.glob("*.json"))}
    if not paths:
        typer.echo(f"{folder}: no profiles (*.json)", err=True)
        raise typer.Exit(2)
    _print(listing(paths))


@app.command()
def show(profile: Named, context: Context = 1024, drafter: OfDrafter = None) -> None:
    """Show where a profile comes from, its terms, and step times over batch and depth."""
    from calibrate import profile_view as view

    found = view.find_profile(profile)
    chosen = view.choose_drafter(found, drafter)
    name = drafter or next(iter(found.drafters), "no drafter")
    _print(*view.about(found), "", view.term_table(found, context), "")
    _print(f"ms per round (draft with {name}, verify, sampling, host) at {context:,} tokens of context")
    _print(view.step_table(found, chosen, context), "* beyond the measured range")


@app.command()
def diff(
    one: Named,
    other: Named,
    context: Context = 1024,
    drafter: Annotated[str | None, typer.Option("--drafter", help="Drafter of the first profile.")] = None,
    other_drafter: Annotated[
        str | None, typer.Option("--other-drafter", help="Drafter of the second (default: the same name).")
    ] = None,
) -> None:
    """Show two profiles' step times side by side, and the second over the first."""
    from calibrate import profile_view as view

    a, b = view.find_profile(one), view.find_profile(other)
    second = other_drafter or (drafter if drafter in b.drafters else None)
    for letter, found in (("A", a), ("B", b)):
        _print(f"{letter} = {next(iter(view.about(found)))}")
    _print(
        f"ms per round at {context:,} tokens of context", view.diff_table(a, b, (drafter, second), context)
    )


@app.command()
def plot(
    profile: Named,
    out: Annotated[
        Path | None, typer.Option("--out", help="File to write (default: PROFILE.svg here).")
    ] = None,
    context: Annotated[int | None, typer.Option("--context", min=0, help="KV tokens per sequence.")] = None,
) -> None:
    """Draw measured points against the fit over tokens, with the ridge (SVG)."""
    from calibrate.profile import ProfileError, write_atomically
    from calibrate.profile_plot import plot as draw
    from calibrate.profile_view import find_profile

    found = find_profile(profile)
    path = out or Path(f"{found.name}.svg")
    if path.suffix.lower() != ".svg":
        raise ProfileError(str(path), "--out", "is not an .svg file; the picture is SVG")
    try:
        write_atomically(path, draw(found, context))
    except OSError as error:
        raise ProfileError(str(path), "--out", f"cannot be written ({error.strerror})") from None
    typer.echo(str(path))


@app.command()
def check(profile: Named) -> None:
    """Say whether a profile may be used: refusals, warnings, and how much of it was measured."""
    from calibrate import profile_view as view

    found = view.find_profile(profile)
    problems = list(view.findings(found))
    for level, message in problems:
        _print(f"{level}: {message}")
    for batch, depth in ((1, 0), (32, 3)):
        shares = view.mark_shares(found, batch, depth, view.CONTEXT)
        parts = ", ".join(f"{share:.0%} {mark}" for mark, share in shares.items())
        _print(f"step of {batch} x depth {depth}: {parts}")
    refused = sum(level == "refused" for level, _ in problems)
    verdict = "refused" if refused else "may be used"
    _print(
        f"{found.name}: {verdict}; {len(problems) - refused} warnings, {len(found.assumptions)} assumptions"
    )
    if refused:
        raise typer.Exit(1)


@app.command("import")
def import_(
    format_: Annotated[str, typer.Argument(metavar="FORMAT", help="See `leadline profile formats`.")],
    files: Annotated[list[Path] | None, typer.Argument(help="Files of that format.")] = None,
    name: Annotated[str, typer.Option("--name", help="Name of the profile and its file.")] = "imported",
    device: Annotated[
        str, typer.Option("--device", help="A GPU by name, as in h100, or NAME:GB:GB_PER_S:TFLOPS[:COUNT].")
    ] = "",
    gpus: Annotated[int, typer.Option("--gpus", min=1, help="Devices that serve one replica.")] = 1,
    config: Annotated[str, typer.Option("--config", help="config.json of the target, or llama-3.1-8b.")] = "",
    model: Annotated[str, typer.Option("--model", help="Name of the target.")] = "",
    parameters: Annotated[
        float, typer.Option("--parameters", help="Of the target, as in 8.03e9, without --config.")
    ] = 0.0,
    bytes_each: Annotated[float, typer.Option("--bytes-each", help="Bytes per parameter.")] = 2.0,
    kv_bytes: Annotated[
        float, typer.Option("--kv-bytes", help="KV bytes per token, without --config.")
    ] = 0.0,
    dtype: Annotated[str, typer.Option("--dtype")] = "bfloat16",
    drafter: Annotated[
        list[str] | None,
        typer.Option(
            "--drafter", metavar="NAME:KIND:FIRST_MS[:NEXT_MS[:MAX_DEPTH]]", help="Drafter by hand."
        ),
    ] = None,
    draft_name: Annotated[
        str, typer.Option("--draft-name", help="Name of the drafter in the data.")
    ] = "drafter",
    draft_kind: Annotated[
        str, typer.Option("--draft-kind", help="Its kind: eagle, mtp, draft_model, parallel or ngram.")
    ] = "eagle",
    select: Annotated[
        list[str] | None,
        typer.Option("--select", metavar="KEY=VALUE", help="Rows to take: gpu=, model=, tp=."),
    ] = None,
    error: Annotated[
        float | None, typer.Option("--error", min=0, max=0.99, help="Stated error as a share, as in 0.1.")
    ] = None,
    source: Annotated[str, typer.Option("--source", help="Where the numbers come from, kept.")] = "",
    note: Annotated[str, typer.Option("--note", help="A remark, kept.")] = "",
    created: Annotated[str, typer.Option("--created", help="A date, kept.")] = "undated",
    out: Annotated[Path, typer.Option("--out", help="Folder for the profile.")] = Path(),
) -> None:
    """Make a profile from tables, engine cost tables, a CSV, or serving logs."""
    from calibrate.importers import FORMATS, import_profile
    from calibrate.importers.options import about_from
    from calibrate.profile import ProfileError, save_profile

    if format_ not in FORMATS:
        raise ProfileError(format_, "FORMAT", f"is not known; one of: {', '.join(FORMATS)}")
    if not files and format_ != "aiconfigurator":
        raise ProfileError(format_, "FILE", "give at least one file to import")
    about = about_from(
        name=name,
        device=device,
        gpus=gpus,
        config=config,
        model=model,
        parameters=parameters,
        bytes_each=bytes_each,
        kv_bytes=kv_bytes,
        dtype=dtype,
        drafters=drafter or [],
        draft_name=draft_name,
        draft_kind=draft_kind,
        select=select or [],
        error=error,
        source=source,
        note=note,
        created=created,
        command=f"leadline {shlex.join(sys.argv[1:])}",
    )
    made = import_profile(format_, files or [], about)
    path = out / f"{name}.json"
    try:
        save_profile(made, path)
    except OSError as problem:
        raise ProfileError(str(path), "--out", f"cannot be written ({problem.strerror})") from None
    stated = "not stated" if made.error is None else f"±{made.error.relative:.0%}: {made.error.basis}"
    _print(
        str(path), *(f"assumed {a.what}: {a.value}. {a.why}" for a in made.assumptions), f"error: {stated}"
    )


@app.command()
def formats() -> None:
    """List what `leadline profile import` reads."""
    from calibrate.importers import FORMATS

    for name, (_, what) in FORMATS.items():
        _print(f"{name:<16}{what}")
