"""leadline from Python: what the command line does, as functions that return plain objects."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from sim.ablation.run import ablate_scenario
from sim.ablation.shares import Ablation
from sim.errors import InputError
from sim.explain.table import preset_of
from sim.scenario.choose import Choice, choose
from sim.scenario.lint import lint
from sim.scenario.load import Loaded, check_document, find_scenario, read_scenario
from sim.scenario.model import Scenario
from sim.scenario.nodes import Document
from sim.sweep.execute import Kind
from sim.sweep.results import Results
from sim.sweep.run import Shard, run_scenario, run_shard
from sim.sweep.saved import open_results, save

__all__ = ["Ablation", "Results", "Scenario", "ablate", "check", "load", "open_results", "run", "run_part"]

Source = str | Path | Mapping[str, Any] | Scenario
"""A scenario's file, a shipped scenario's name, the same as plain data, or one that was loaded."""


def load(
    scenario: Source,
    settings: Mapping[str, Any] | None = None,
    *,
    seed: int | None = None,
    seeds: int | None = None,
    policies: Sequence[str] | None = None,
    quick: bool = False,
    precision: str | None = None,
) -> Scenario:
    """A scenario, checked; ``ScenarioError`` says everything that is wrong with it.

    ``settings`` sets values, as YAML would hold them, at dotted paths:
    ``{"workload.arrival.request_rate": "8/s"}``. The rest narrows it as the flags of ``leadline
    run`` do: the first seed, how many seeds, policies by label, a quick look, a precision.
    """
    if seeds is not None and seeds < 1:
        raise InputError(f"seeds is {seeds}; it must be 1 or more")
    if isinstance(policies, str):
        policies = [policies]
    chosen = None if policies is None else ",".join(policies)
    return choose(_read(scenario, settings), Choice(seed, seeds, chosen, quick, precision)).scenario


def check(scenario: Source) -> list[str]:
    """What is allowed and seldom meant in a scenario; raises ``ScenarioError`` for what is wrong."""
    return [str(each) for each in lint(_read(scenario))]


def run(
    scenario: Source,
    settings: Mapping[str, Any] | None = None,
    *,
    jobs: int = 1,
    out: str | Path | None = None,
    executor: Kind = "local",
    progress: Callable[[int, int], None] = lambda done, total: None,
    **chosen: Any,
) -> Results:
    """Run a scenario under its policies and compare them.

    ``settings`` and ``chosen`` are those of ``load``. ``jobs`` is the number of worker processes,
    ``executor`` where they are; no result depends on either. With ``out`` everything is kept in
    that folder and what is there already is not run again. ``progress`` is called with
    (finished, total) runs.
    """
    _check_workers(jobs, executor)
    folder = None if out is None else Path(out)
    results = run_scenario(
        load(scenario, settings, **chosen), jobs, folder, progress=progress, workers=executor
    )
    if folder is not None:
        save(results, folder)
    return results


def ablate(
    scenario: Source,
    settings: Mapping[str, Any] | None = None,
    *,
    against: str = "ideal",
    switches: Sequence[str] | None = None,
    jobs: int = 1,
    executor: Kind = "local",
    progress: Callable[[int, int], None] = lambda done, total: None,
    **chosen: Any,
) -> Ablation:
    """What each mechanism of the engine is worth in a scenario.

    Runs it as it stands, with each switch in which its engine differs from the preset ``against`` set as
    there, one at a time, and with all of them; limits and memory stay. ``switches`` keeps some of them.
    The rest is as for ``run``.
    """
    if isinstance(switches, str):
        switches = [switches]
    _check_workers(jobs, executor)
    return ablate_scenario(
        load(scenario, settings, **chosen), preset_of(against), switches, jobs, progress, executor
    )


def run_part(
    scenario: Source,
    part: int,
    parts: int,
    out: str | Path,
    settings: Mapping[str, Any] | None = None,
    *,
    jobs: int = 1,
    executor: Kind = "local",
    **chosen: Any,
) -> Shard:
    """Make one of ``parts`` shares of the runs, counted from 1; ``run`` on the same folder compares them."""
    return run_shard(load(scenario, settings, **chosen), part, parts, Path(out), jobs=jobs, workers=executor)


def _check_workers(jobs: int, executor: Kind) -> None:
    """Raise ``InputError`` for workers that there cannot be."""
    if jobs < 1:
        raise InputError(f"jobs is {jobs}; it must be 1 or more")
    if executor not in get_args(Kind):
        raise InputError(f"executor is {executor!r}; it must be one of {', '.join(get_args(Kind))}")


def _read(source: Source, settings: Mapping[str, Any] | None = None) -> Loaded:
    if isinstance(source, Scenario):
        document = Document(source.name, dict(source.written))
        return check_document(document, source.folder, source.name, settings)
    if isinstance(source, Mapping):
        return check_document(Document("scenario", dict(source)), Path(), "scenario", settings)
    return read_scenario(find_scenario(str(source)), settings)
