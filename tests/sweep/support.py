"""A small scenario, and folders compared byte by byte."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sim.api
from sim.scenario.model import Scenario

SMALL: dict[str, Any] = {
    "name": "small",
    "profile": "llama-3.1-8b-h100",
    "drafter": "eagle3",
    "acceptance": {"process": "latent", "mean": 0.7, "spread": 1.0, "correlation": 0.5},
    "workload": {
        "arrival": {"process": "poisson", "request_rate": "8/s"},
        "lengths": {"input": 200, "output": 20},
        "num_requests": 60,
    },
    "policies": ["off", {"policy": "static", "k": 3}, {"policy": "goodput", "k_max": 4}],
    "sweep": {"workload.arrival.request_rate": ["4/s", "16/s"]},
    "run": {"seeds": 2},
}
RUNS = 2 * 3 * 2


def small(**settings: Any) -> Scenario:
    """The small scenario with values set at dotted paths, ``__`` for a dot."""
    return sim.api.load(SMALL, {key.replace("__", "."): value for key, value in settings.items()})


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in _files(folder)}


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file())
