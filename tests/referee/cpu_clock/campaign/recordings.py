"""What the campaign recorded: runs with their steps and requests, and the profile fitted to them."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from calibrate.profile import Profile
from tests.referee.cpu_clock.campaign.plan import Item, calibration, items
from tests.referee.cpu_clock.costs import Cell, Origin, profile_of

Columns = dict[str, NDArray[np.int64]]

FOLDER: Final = Path(__file__).with_name("recorded")
KNOTS: Final = (
    *(1, 2, 3, 4, 6, 7, 8, 9, 12, 13, 16, 18, 20, 24, 28, 32, 36, 42, 48, 56, 64, 72, 84, 96, 112, 128),
    *(152, 176, 200, 256),
)
"""The target pass over tokens is a staircase: matrix kernels take rows by the six."""
MS: Final = 1e6


@dataclass(frozen=True)
class Run:
    """One recorded run: its repetition, item, anchors before and after (ms), steps and requests."""

    repetition: int
    item: Item
    anchors: tuple[float, float]
    steps: Columns
    requests: Columns


def load(folder: Path = FOLDER) -> list[Run]:
    """Every run, by repetition and in the order of recording."""
    numbers = sorted(int(path.name) for path in folder.iterdir() if path.name.isdigit())
    return [run for number in numbers for run in _repetition(folder / str(number), number)]


def disturbed(runs: Sequence[Run]) -> list[int]:
    """Repetitions during which the machine was not its own, as their anchors say.

    In those, more than a tenth of the anchors took 5 % longer than the median of all.
    """
    anchors: dict[int, list[float]] = {}
    for run in runs:
        anchors.setdefault(run.repetition, []).extend(run.anchors)
    limit = 1.05 * np.median([anchor for run in runs for anchor in run.anchors])
    return [n for n, own in anchors.items() if np.mean(np.array(own) > limit) > 0.10]


def undisturbed(runs: Sequence[Run]) -> list[Run]:
    """The runs of all other repetitions."""
    without = disturbed(runs)
    return [run for run in runs if run.repetition not in without]


def about(folder: Path = FOLDER) -> list[dict[str, Any]]:
    """What each repetition was recorded on."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*/about.json"))]


def _repetition(folder: Path, number: int) -> Iterable[Run]:
    known = {item.name: item for item in (*items(number), *calibration())}
    steps, requests = (_columns(folder / f"{name}.csv.gz") for name in ("steps", "requests"))
    for row in _rows(folder / "runs.csv.gz"):
        run, anchors = int(row["run"]), (float(row["before_ms"]), float(row["after_ms"]))
        yield Run(number, known[row["item"]], anchors, _of(steps, run), _of(requests, run))


def _rows(path: Path) -> Iterable[dict[str, str]]:
    return csv.DictReader(io.StringIO(gzip.decompress(path.read_bytes()).decode()))


def _columns(path: Path) -> Columns:
    head, *rows = csv.reader(io.StringIO(gzip.decompress(path.read_bytes()).decode()))
    return dict(zip(head, np.array(rows, dtype=np.int64).T, strict=True))


def _of(columns: Columns, run: int) -> Columns:
    keep = columns["run"] == run
    return {name: values[keep] for name, values in columns.items() if name != "run"}


# -- calibration -----------------------------------------------------------------------------------


def cells_of(runs: Sequence[Run]) -> list[Cell]:
    """Every step up to the largest curve point, prefills among them, as a cell of its own."""
    found = []
    for run in runs:
        drafts = run.item.policy != "off"
        s = run.steps
        rest = s["cpu_ns"] - s["target_ns"] - s["draft_ns"]
        for i in np.flatnonzero(s["tokens"] <= KNOTS[-1]).tolist():
            found.append(
                Cell(
                    config=f"{run.repetition}/{run.item.policy}",
                    tokens=int(s["tokens"][i]),
                    sequences=int(s["sequences"][i]),
                    depth=int(s["depth"][i]),
                    drafts=drafts,
                    query_context=float(s["query_context"][i]),
                    verify_ms=float(s["target_ns"][i] / MS),
                    draft_ms=float(s["draft_ns"][i] / MS),
                    rest_ms=float(rest[i] / MS),
                )
            )
    return found


def calibrated(runs: Sequence[Run]) -> Profile:
    """The profile of the calibration runs among ``runs``."""
    fit = [run for run in runs if run.item.kind == "fit"]
    source = "closed-loop runs of vLLM 0.32 on the CPU clock, tests/referee/cpu_clock/campaign/recorded"
    return profile_of(cells_of(fit), origin=Origin("vllm-cpu-campaign", source, KNOTS, "2026-11-30"))
