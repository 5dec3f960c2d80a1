"""What the workload tests share: short ways to configure, build and find files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from sim.workload.build import build_requests
from sim.workload.config import WorkloadConfig
from sim.workload.requests import Requests

ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared" / "data"
SHORT = {"input": 10, "output": 5}

needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="needs ../shared/data beside the repository")


def locate(name: str) -> Path:
    """A shipped workload by name, anything else as a path."""
    shipped = ROOT / "scenarios" / "workloads" / f"{name}.json"
    return shipped if shipped.is_file() else Path(name)


def configure(arrival: dict[str, Any], **rest: Any) -> WorkloadConfig:
    """A configuration as the YAML would give it, with short constant lengths unless told."""
    if arrival["process"] != "trace" and "classes" not in rest:
        rest.setdefault("lengths", SHORT)
    return WorkloadConfig.model_validate({"arrival": arrival, **rest})


def build(arrival: dict[str, Any], seed: int = 1, **rest: Any) -> Requests:
    """The requests of ``configure(...)``."""
    return build_requests(configure(arrival, **rest), seed, locate)


def dispersion(arrival_ns: NDArray[np.int64], window_s: int, span_s: int) -> float:
    """Variance over mean of the counts in the whole windows of the first ``span_s`` seconds."""
    windows = span_s // window_s
    counts = np.bincount(arrival_ns // (window_s * 10**9), minlength=windows)[:windows]
    return float(counts.var() / counts.mean())


def same(a: Requests, b: Requests) -> bool:
    """All arrays, classes and the concurrency bound are equal."""
    arrays = ("arrival_ns", "prompt_tokens", "output_tokens", "class_id")
    equal = all(np.array_equal(getattr(a, name), getattr(b, name)) for name in arrays)
    return equal and a.classes == b.classes and a.max_concurrency == b.max_concurrency
