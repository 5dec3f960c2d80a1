"""Fixtures and second implementations shared by the acceptance tests."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from pydantic import TypeAdapter

from sim.acceptance.base import AcceptanceProcess
from sim.acceptance.build import build_process
from sim.acceptance.config import AcceptanceConfig

Floats = NDArray[np.float64]
GROUNDTRUTH = Path(__file__).resolve().parents[3] / "shared" / "groundtruth"
_ADAPTER: TypeAdapter[Any] = TypeAdapter(AcceptanceConfig)


def configure(**config: object) -> AcceptanceConfig:
    """The acceptance section of a scenario."""
    validated: AcceptanceConfig = _ADAPTER.validate_python(config)
    return validated


def build(max_depth: int = 8, seed: int = 1, **config: object) -> AcceptanceProcess:
    """A process from its YAML keys."""
    return build_process(configure(**config), seed, max_depth, Path)


def published(name: str) -> list[dict[str, str]]:
    """Rows of one published table; skips the test where the tables are absent."""
    path = GROUNDTRUTH / name
    if not path.exists():
        pytest.skip(f"published measurements are not here: {path}")
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    return list(csv.DictReader(lines))


def rates(column: str) -> list[float]:
    """Numbers of a ``;``-separated cell."""
    return [float(value) for value in column.split(";")]


def walk(run: Sequence[int], depth_of: Callable[[int, int], int]) -> list[tuple[int, int]]:
    """(drafted, accepted) of each round when ``depth_of(round, accepted before)`` chooses the depth."""
    position, accepted = 0, 0
    rounds: list[tuple[int, int]] = []
    while position < len(run):
        depth = depth_of(len(rounds), accepted)
        accepted = min(int(run[position]), depth)
        rounds.append((depth, accepted))
        position += accepted + 1
    return rounds


def z_of_mean(samples: Sequence[float] | Floats, expected: float) -> float:
    """Standard score of the mean of independent samples."""
    values = np.asarray(samples, dtype=np.float64)
    return float((values.mean() - expected) / (values.std(ddof=1) / np.sqrt(len(values))))


def tokens_per_round(
    process: AcceptanceProcess, depth: int, requests: int, tokens: int
) -> tuple[float, float]:
    """Ratio estimate and its standard error over requests of equal length."""
    pairs = []
    for request in range(requests):
        rounds = walk(process.path(request, 1, tokens).run.tolist(), lambda *_: depth)
        pairs.append((sum(a + 1 for _, a in rounds), len(rounds)))
    emitted, count = np.array(pairs, dtype=np.float64).T
    mean = emitted.sum() / count.sum()
    error = np.std(emitted - mean * count, ddof=1) * np.sqrt(requests) / count.sum()
    return float(mean), float(error)
