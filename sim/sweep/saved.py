"""A results folder as a whole: the summary, what it was made from, and the runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, TypeVar

from calibrate.profile import load_profile, save_profile
from sim.errors import InputError
from sim.results.compare import Comparison
from sim.results.store import SUMMARY_SCHEMA, read_json, write_json
from sim.scenario.load import rebuild
from sim.scenario.model import Cell
from sim.sweep.folder import Folder, RunFolder
from sim.sweep.results import Finished, Results, RunKey, compared
from sim.sweep.run import measure_for

T = TypeVar("T")
SCENARIO_SCHEMA: Final = "leadline.scenario/1"
SUMMARY_FILE: Final = "summary.json"
SCENARIO_FILE: Final = "scenario.json"


def save(results: Results, out: Path) -> None:
    """Write ``summary.json``, ``scenario.json`` and the profiles; the runs are there already."""
    scenario, files = results.scenario, {}
    (out / "profiles").mkdir(parents=True, exist_ok=True)
    for number, (name, profile) in enumerate(results.profiles.items()):
        files[name] = f"{number}-{profile.name}.json"
        save_profile(profile, out / "profiles" / files[name])
    written = {
        "schema": SCENARIO_SCHEMA,
        "name": scenario.name,
        "folder": str(scenario.folder.resolve()),
        "written": dict(scenario.written),
        "profiles": files,
    }
    write_json(out / SCENARIO_FILE, written)
    write_json(out / SUMMARY_FILE, results.summary())


def open_results(folder: Path | str) -> Results:
    """The results that a folder holds, as ``run_scenario`` returned them; nothing is run.

    The files that the scenario names need not be there any more. Raises ``InputError`` when the
    folder holds no finished results.
    """
    out = Path(folder)
    if not (out / SUMMARY_FILE).is_file():
        raise InputError(f"{out}: holds no {SUMMARY_FILE}; run the scenario with --out {out}, to its end")
    summary = read_json(out / SUMMARY_FILE, SUMMARY_SCHEMA)
    saved = read_json(out / SCENARIO_FILE, SCENARIO_SCHEMA)
    scenario, cells = rebuild(saved["written"], Path(saved["folder"]), saved["name"])
    kept = {
        cell.label: _kept(cell, found, Folder(out))
        for cell, found in zip(cells, summary["cells"], strict=True)
    }
    runs = {key: run for cell in cells for key, run in _measured(cell, kept[cell.label]).items()}
    seeds = {cell.label: found["seeds"] for cell, found in zip(cells, summary["cells"], strict=True)}
    return Results(
        scenario=scenario,
        cells=cells,
        comparison=Comparison(
            tuple(compared(cell, runs, seeds[cell.label]) for cell in cells),
            summary["baseline"],
            summary["metric"],
            summary["error"],
        ),
        runs=runs,
        profiles={name: load_profile(out / "profiles" / file) for name, file in saved["profiles"].items()},
        about=summary["about"],
        warnings=tuple(summary["warnings"]),
        folders={key: run for each in kept.values() for key, run in each.items()},
    )


def _kept(cell: Cell, found: dict[str, Any], folder: Folder) -> dict[RunKey, RunFolder]:
    """Where the runs of a cell are, seed by seed, as its summary says."""
    return {
        (cell.label, policy["policy"], seed): RunFolder(folder.runs / policy["runs"][i])
        for i, seed in enumerate(found["seeds"])
        for policy in found["policies"]
    }


def _measured(cell: Cell, kept: dict[RunKey, RunFolder]) -> dict[RunKey, Finished]:
    """The runs of a cell as they were measured."""
    finished: dict[RunKey, Finished] = {}
    for seed in dict.fromkeys(seed for _, _, seed in kept):
        group = {key: run for key, run in kept.items() if key[2] == seed}
        facts = {key: _there(run, run.facts()) for key, run in group.items()}
        how = measure_for(cell.scenario, list(facts.values()))
        for key, run in group.items():
            known = facts[key]
            metrics = _there(run, run.metrics(how))
            finished[key] = Finished(metrics, known.breakdown_ns, known.extrapolated_share)
    return finished


def _there(run: RunFolder, found: T | None) -> T:
    if found is None:
        raise InputError(f"{run.path}: is missing or damaged; run the scenario again with the same --out")
    return found
