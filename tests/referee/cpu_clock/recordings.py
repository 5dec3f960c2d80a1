"""The recorded runs of the real vLLM on the CPU clock, as small files of our own.

``pack`` keeps of the original recordings what the comparison needs: every step and request, the
configurations, no wall-clock times. A *process* is one configuration's vLLM process: ``clean/k3``,
``main/k3_a.7`` or ``open/k3``.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

FOLDER: Final = Path(__file__).with_name("recorded")
CONFIGS: Final = "configs.json"

Columns = dict[str, NDArray[Any]]

KEPT: Final[dict[str, tuple[str, ...]]] = {
    "clean_steps": (
        *("config", "conc", "B", "T", "nspec_next", "newreq", "newtok"),
        *("step_cpu_ms", "fwd_cpu_ms", "draft_cpu_ms"),
    ),
    "main_runs": ("config", "conc", "nreq", "tok", "steps", "drafts", "cpu_s"),
    "open_ostep": ("config", "rate", "B", "T", "k_next", "newreq", "newtok", "step_cpu_ms"),
    "open_req": ("config", "rate", "arrival", "prompt", "out", "ttft_s", "e2e_s"),
}
"""Columns kept of each file."""


@dataclass(frozen=True)
class Recorded:
    """Columns of closed-loop steps and runs and of open-loop steps and requests, with configurations.

    ``configs`` is keyed by process. Steps in which nothing was scheduled are left out.
    """

    closed_steps: Columns
    closed_runs: Columns
    open_steps: Columns
    open_requests: Columns
    configs: dict[str, dict[str, Any]]


def pack(source: Path, folder: Path) -> None:
    """Write the kept part of the recordings in ``source`` to ``folder``, the same bytes each time."""
    folder.mkdir(exist_ok=True)
    for name, columns in KEPT.items():
        text = _csv((source / f"{name}.csv").read_text(encoding="utf-8"), columns)
        (folder / f"{name}.csv.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    configs = {
        f"{kind}/{config['name']}": config
        for kind in ("clean", "main", "open")
        for config in json.loads((source / f"cfg_{kind}.json").read_text(encoding="utf-8"))
    }
    (folder / CONFIGS).write_text(_lines(configs), encoding="utf-8")


def _csv(text: str, columns: tuple[str, ...]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(
        [row[name] for name in columns] for row in csv.DictReader(io.StringIO(text)) if row.get("B") != ""
    )
    return out.getvalue()


def _lines(configs: dict[str, Any]) -> str:
    return "{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in configs.items()) + "\n}\n"


def load(folder: Path = FOLDER) -> Recorded:
    """Read what ``pack`` wrote."""
    steps, runs, open_steps, requests = (_columns(folder / f"{name}.csv.gz") for name in KEPT)
    configs = json.loads((folder / CONFIGS).read_text(encoding="utf-8"))
    return Recorded(steps, runs, open_steps, requests, configs)


def _columns(path: Path) -> Columns:
    head, *rows = csv.reader(io.StringIO(gzip.decompress(path.read_bytes()).decode()))
    columns = dict(zip(head, zip(*rows, strict=True), strict=True))
    return {
        name: np.array(values, dtype=None if name == "config" else float) for name, values in columns.items()
    }


def select(columns: Columns, **wanted: object) -> Columns:
    """The rows in which every named column has the given value."""
    keep = np.ones(len(columns["config"]), dtype=bool)
    for name, value in wanted.items():
        keep &= columns[name] == value
    return {name: values[keep] for name, values in columns.items()}
