"""``leadline calibrate``: times draft and verify passes on this machine and writes a profile.

Its command ``record-acceptance`` trains a small pair of models and records which drafts survive.

Exit codes: 0 done, 2 wrong options or cells that are refused as a profile (they are kept), 130
interrupted (what was measured is written, if it makes a profile).
"""

from __future__ import annotations

import math
import os
import re
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from calibrate.campaign import Outcome, Step
    from calibrate.profile import Profile
    from calibrate.session import Options, Parts

app = typer.Typer(
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Time draft and verify passes on this machine and write a profile.",
)

REFUSED, INTERRUPTED = 2, 130


@app.callback()
def calibrate(
    context: typer.Context,
    model: Annotated[str, typer.Option(help="A preset's name, or a config.json.")] = "cpu-small",
    drafter: Annotated[
        list[str] | None,
        typer.Option(help="One of the preset (default: all), NAME=KIND:config.json, or none."),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    dtype: Annotated[str, typer.Option(help="float32, bfloat16, float16, fp8, or auto.")] = "auto",
    budget: Annotated[str, typer.Option(help="Time for everything, as in 90s or 5m.")] = "5m",
    quick: Annotated[bool, typer.Option("--quick", help="About a third of the cells, once.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the cells that are there.")] = False,
    out: Annotated[str | None, typer.Option(help="The profile (default: MODEL-DEVICE.json).")] = None,
    threads: Annotated[int, typer.Option(min=1, help="CPU threads; 1 is timed by CPU time.")] = 1,
    seed: Annotated[int, typer.Option(help="Of weights, data and the order of cells.")] = 0,
    sampling: Annotated[str, typer.Option(help="greedy or T=1: what accept does.")] = "greedy",
    layers: Annotated[
        int | None, typer.Option(min=1, help="Distinct layers kept (default: all that fit).")
    ] = None,
) -> None:
    """Time draft and verify passes on this machine and write a profile."""
    if context.invoked_subcommand is not None:
        return
    began = time.monotonic()
    with _messages():
        given = _out(out)
        options = _options(model, drafter or [], device, dtype, threads, seed, quick, sampling, layers, given)
        path = given or Path(f"{options.name}.json")
        _calibrate(options, path, seconds(budget), resume, began)


@app.command("record-acceptance")
def record_acceptance(
    out: Annotated[Path, typer.Option(help="A folder: traces, what they say, and the models.")],
    temperature: Annotated[
        list[str] | None, typer.Option(help="greedy or a number; may be given again (default: greedy, 1).")
    ] = None,
    requests: Annotated[int, typer.Option(help="Rows of a trace; a block drafter's has a quarter.")] = 256,
    threads: Annotated[int, typer.Option(min=1, help="CPU threads.")] = 1,
    seed: Annotated[int, typer.Option(help="Of weights, text and draws.")] = 0,
) -> None:
    """Train small byte models on Python's own library (minutes, once) and record which drafts survive."""
    with _messages():
        from calibrate.recording import run
        from calibrate.recording.pair import Recipe

        temperatures = tuple(_temperature(text) for text in temperature or ("greedy", "1"))
        command = f"leadline calibrate {shlex.join(_given())}"
        options = run.Options(
            out, temperatures, requests, threads=threads, command=command, recipe=Recipe(seed)
        )
        for path in run.run(options, _err):
            typer.echo(path)


def _temperature(text: str) -> float:
    """0 for ``greedy``, else the positive number; ``ValueError`` for anything else."""
    try:
        value = 0.0 if text == "greedy" else float(text)
    except ValueError:
        value = math.nan
    if not (text == "greedy" or 0 < value < math.inf):
        raise ValueError(f"--temperature {text!r} is neither greedy nor a positive number")
    return value


def seconds(text: str) -> float:
    """Seconds of ``90s``, ``5m`` or ``1h``; ``ValueError`` for anything else."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(s|m|h)", text.strip())
    if found is None:
        raise ValueError(f"--budget {text!r} is not a time such as 90s, 5m or 1h")
    return float(found[1]) * {"s": 1, "m": 60, "h": 3600}[found[2]]


def _out(text: str | None) -> Path | None:
    """The file that ``--out`` names; ``ValueError`` for a directory."""
    if text is None:
        return None
    path = Path(text)
    if not path.name or text.endswith(("/", os.sep)) or path.is_dir():
        raise ValueError(f"--out {text!r} is a directory; name the profile's file in it")
    return path


def _options(
    model: str,
    drafters: list[str],
    device: str,
    dtype: str,
    threads: int,
    seed: int,
    quick: bool,
    sampling: str,
    layers: int | None,
    out: Path | None,
) -> Options:
    from calibrate.presets import drafters_of, find_preset
    from calibrate.session import DTYPE_BYTES, Options, profile_name

    preset = find_preset(model)
    on = _one_of("--device", device, ("auto", "cpu", "cuda"))
    on = _found_device() if on == "auto" else on
    kind = _one_of("--dtype", dtype, ("auto", *DTYPE_BYTES))
    kind = {"cpu": "float32", "cuda": "bfloat16"}[on] if kind == "auto" else kind
    return Options(
        name=_name(profile_name(out) if out else f"{preset.model}-{on}"),
        preset=preset,
        drafters=drafters_of(preset, drafters),
        device=on,
        dtype=kind,
        threads=threads,
        seed=seed,
        quick=quick,
        sampling="T=1" if _one_of("--sampling", sampling, ("greedy", "T=1")) == "T=1" else "greedy",
        layers=layers,
        command=f"leadline calibrate {shlex.join(_given())}".strip(),
        ranks=int(os.environ.get("WORLD_SIZE", "1")),
    )


def _given() -> list[str]:
    """The arguments after ``calibrate``, as they were typed."""
    return sys.argv[sys.argv.index("calibrate") + 1 :] if "calibrate" in sys.argv else sys.argv[1:]


def _name(text: str) -> str:
    """A profile's name: lower case, and nothing but letters, digits, dots, dashes and underscores."""
    return re.sub(r"[^a-z0-9._-]+", "-", text.lower()).strip("._-") or "profile"


def _one_of(option: str, value: str, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise ValueError(f"{option} {value!r} is not one of {', '.join(allowed)}")
    return value


def _found_device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def _calibrate(options: Options, path: Path, budget_s: float, resume: bool, began: float) -> None:
    from calibrate import session
    from calibrate.fit.cells import FitError
    from calibrate.journal import Journal

    parts = session.build_parts(options)
    if parts.peers.rank > 0:
        _follow(parts)
        return
    journal = Journal(session.journal_path(path), options.about(parts.device.name, parts.machine))
    journal.open(resume)
    with _interruptible(signal.default_int_handler), _progress() as watch:
        left = budget_s - (time.monotonic() - began)
        outcome = session.run_campaign(options, parts, journal, left, watch)
    _say(outcome, journal.path)
    interrupted, refused = outcome.stopped == "interrupted", True
    try:
        refused = _write(session.to_profile(options, parts, outcome), path, journal.path)
    except FitError as error:
        if not interrupted:
            raise
        _err(str(error))
    if interrupted:
        raise typer.Exit(INTERRUPTED)
    if refused:
        raise typer.Exit(REFUSED)


def _follow(parts: Parts) -> None:
    """A rank beside the first: no journal, no profile, nothing on the screen."""
    from calibrate.campaign import follow

    with _interruptible(signal.SIG_IGN):
        follow(parts.bench, parts.timers, parts.peers)


def _say(outcome: Outcome, journal: Path) -> None:
    """What was measured, what was not, and why it ended."""
    done = len(outcome.finished) - len(outcome.skipped)
    ends = {
        "finished": "",
        "budget": "; the budget is spent: a larger --budget with --resume goes on",
        "interrupted": "; interrupted: --resume goes on",
    }
    counts = f"{done} cells in {journal}, {len(outcome.skipped)} skipped"
    _err(f"{counts}, drift {outcome.drift:.1%}{ends[outcome.stopped]}")


def _write(profile: Profile, path: Path, journal: Path) -> bool:
    """Print the errors of the fit and write the profile; returns whether it was refused.

    A refused one goes beside ``path``, to be looked at; what lies at ``path`` stays as it was.
    """
    from calibrate.fit.check import check_profile
    from calibrate.profile import save_profile
    from calibrate.session import beside

    for name, report in profile.fit.items():
        error = f"held out: {report.leave_one_out}" if report.leave_one_out else f"error: {report.in_sample}"
        typer.echo(f"{name}: {report.cells} cells; {error}")
    found = check_profile(profile)
    for finding in found:
        _err(str(finding))
    aside = beside(path, ".refused.json")
    if any(finding.level == "refused" for finding in found):
        save_profile(profile, aside)
        _err(f"refused: {path} was not written; see {aside} for what was measured, cells are in {journal}")
        return True
    save_profile(profile, path)
    aside.unlink(missing_ok=True)
    typer.echo(str(path))
    return False


@contextmanager
def _interruptible(meet: Any) -> Iterator[None]:
    """Ctrl-C and a polite kill end the campaign alike, also where a script started it in the background.

    ``meet`` handles both. Ranks that follow ignore them: the first one would wait for them in vain.
    """
    signals = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(each, meet) for each in signals]
    try:
        yield
    finally:
        for each, handler in zip(signals, before, strict=True):
            signal.signal(each, handler)


@contextmanager
def _progress() -> Iterator[Callable[[Step], None]]:
    """A bar on stderr; messages (skipped cells) stay above it."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=None)

        def watch(step: Step) -> None:
            if step.text.startswith("skipped"):
                progress.console.print(step.text, highlight=False)
            progress.update(task, completed=step.done, total=step.planned, description=step.text)

        yield watch


@contextmanager
def _messages() -> Iterator[None]:
    """Mistakes of the user and limits of the machine as a message and exit code 2."""
    from calibrate.passes.contract import BenchError
    from calibrate.profile import ProfileError

    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        _err("calibrate needs torch: pip install 'leadline[calibrate]'")
        raise typer.Exit(2) from None
    except (ValueError, OSError, BenchError, ProfileError) as error:
        _err(str(error))
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        _err("interrupted; finished cells are kept: --resume goes on")
        raise typer.Exit(INTERRUPTED) from None


def _err(text: str) -> None:
    typer.echo(text, err=True)


if __name__ == "__main__":
    app()
