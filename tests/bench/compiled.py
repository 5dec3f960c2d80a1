"""The compiled engine beside the stepping one: the same runs, the same records, time per step of both."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import simpy

from calibrate.profile import load_profile
from sim.acceptance.build import build_process
from sim.acceptance.config import Confidence, IidAcceptance
from sim.ahead.asked import open_replica
from sim.ahead.choose import why_asked
from sim.ahead.run import run_ahead
from sim.engine.client import serve
from sim.engine.config import EngineConfig
from sim.engine.simulate import Setup, simulate
from sim.policies.base import Policy
from sim.policies.by_batch import ByBatch
from sim.policies.config import Bounds
from sim.policies.registry import POLICIES
from sim.results.run_records import RunRecords
from sim.workload.requests import Requests

ROOT: Final = Path(__file__).resolve().parents[2]
SHOWN: Final = ("off", "static", "per_batch_size", "goodput", "sglang_ema", "leadline")
DEPTH: Final = 5
_SETTINGS: Final[dict[str, dict[str, Any]]] = {
    "static": {"k": 3},
    "per_batch_size": {"table": [[1, 16, 5], [17, 64, 3], [65, 512, 1]]},
}


def setup_of(batch: int) -> Setup:
    """A closed loop of so many sequences, 256 in and 768 out, twice over; claims known."""
    profile = load_profile(ROOT / "scenarios" / "profiles" / "llama-3.1-8b-h100.json")
    config = IidAcceptance(process="iid", alpha=0.7, confidence=Confidence(auc=0.85))
    n = 2 * batch
    arrivals, prompts, outputs = np.zeros(n, np.int64), np.full(n, 256), np.full(n, 768)
    requests = Requests(arrivals, prompts, outputs, np.zeros(n, np.int64), max_concurrency=batch)
    process = build_process(config, 0, DEPTH, Path)
    return Setup(requests, profile, profile.drafters["eagle3"], EngineConfig(), (process,), DEPTH)


def fresh(name: str) -> Policy:
    """A policy of its own for one run."""
    return POLICIES[name](policy=name, **_SETTINGS.get(name, {})).build(Bounds(DEPTH))


def compiled(setup: Setup, policy: Policy) -> RunRecords:
    """The run by the compiled engine: ahead, or asked between two halves of every step."""
    if isinstance(policy, ByBatch) and why_asked(setup.requests, [policy], [setup]) is None:
        return run_ahead(setup, policy)
    replica = open_replica(simpy.Environment(), setup, policy)
    serve(replica.env, setup.requests, replica, [replica], setup.engine.max_model_len)
    return replica.records()


def compiled_table(repeats: int) -> list[str]:
    """Whole runs by both engines, interleaved; and what loading and compiling cost."""
    lines = [
        "Whole runs, drawing of futures included; medians. *Asked* policies are asked in every step.",
        "",
        "| policy | batch | stepping, us per step | compiled, us per step | ratio |",
        "|---|---|---|---|---|",
    ]
    for batch in (1, 8, 64, 256):
        setup = setup_of(batch)
        for name in SHOWN:
            lines.append(_row(setup, name, batch, repeats))
    return [*lines, "", _first_call()]


def _row(setup: Setup, name: str, batch: int, repeats: int) -> str:
    times: dict[Callable[[Setup, Policy], RunRecords], list[float]] = {simulate: [], compiled: []}
    compiled(setup, fresh(name))
    for _ in range(repeats):
        for engine, taken in times.items():
            start = time.process_time()
            records = engine(setup, fresh(name))
            taken.append(1e6 * (time.process_time() - start) / len(records.steps["end_ns"]))
    slow, fast = (statistics.median(taken) for taken in times.values())
    asked = "" if isinstance(fresh(name), ByBatch) else ", asked"
    return f"| {name}{asked} | {batch} | {slow:.1f} | {fast:.1f} | {slow / fast:.1f} |"


def _first_call() -> str:
    """CPU seconds of a process's first compiled run, with and without machine code on disk."""
    code = (
        "import time; import tests.bench.compiled as bench; setup = bench.setup_of(1);"
        "bench.simulate(setup, bench.fresh('static')); start = time.process_time();"
        "bench.compiled(setup, bench.fresh('static')); print(time.process_time() - start)"
    )
    with tempfile.TemporaryDirectory() as folder:
        command = ["env", f"NUMBA_CACHE_DIR={folder}", sys.executable, "-c", code]
        runs = [subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True) for _ in "ab"]
    compiling, loading = (float(run.stdout) for run in runs)
    return (
        f"The first such run of an installation compiles: {compiling:.0f} s. The first of every later "
        f"process loads the machine code: {loading:.1f} s."
    )
