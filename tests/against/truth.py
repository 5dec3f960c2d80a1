"""Runs whose hidden parameters are known: simulated with other seeds, then written as a tool would."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sim.against.adjust import UNCHANGED, Adjustment
from sim.against.bench import Bench, make_bench
from sim.against.measured import Run
from sim.against.readers import read_files
from sim.engine.simulate import simulate
from sim.policies.config import Bounds
from sim.results.run_records import RunRecords
from sim.scenario.load import load_scenario
from sim.sweep.prepare import prepare
from tests.against import writers

SCENARIO = """\
profile: cpu-small-88m
drafter: draft
acceptance: {process: iid, alpha: 0.7}
workload:
  arrival: {process: closed, max_concurrency: 4}
  lengths: {input: 48, output: {type: uniform, min: 40, max: 80}}
  num_requests: 64
engine: {max_num_seqs: 64, max_num_batched_tokens: 256}
policies: [off, {policy: static, k: 3}]
"""
HIDDEN_SEED = 71


@dataclass(frozen=True)
class Hidden:
    """What the measured system has that the scenario has not."""

    adjustment: Adjustment = UNCHANGED
    settings: Mapping[str, Any] = field(default_factory=dict)
    extra_ttft_ms: float = 0.0


def scenario_file(folder: Path) -> Path:
    path = folder / "mine.yaml"
    path.write_text(SCENARIO)
    return path


def served(path: Path, clients: int, policy: str, hidden: Hidden, requests: int = 32) -> RunRecords:
    """One run of the hidden system in a closed loop."""
    settings = {
        "workload.arrival.max_concurrency": clients,
        "workload.num_requests": requests,
        **hidden.settings,
    }
    scenario = load_scenario(path, settings)
    chosen = next(each for each in scenario.policies if each.title == policy)
    setup = hidden.adjustment.applied(prepare(scenario, chosen, HIDDEN_SEED + clients))
    return simulate(setup, chosen.build(Bounds(setup.max_depth)))


def measured(
    folder: Path, hidden: Hidden, clients: Sequence[int], policies: Sequence[str] = ("static(k=3)",)
) -> tuple[Path, list[Path]]:
    """The scenario, and one detailed vLLM bench result per load and policy."""
    path, files = scenario_file(folder), []
    for policy in policies:
        for count in clients:
            records = served(path, count, policy, hidden)
            result = writers.vllm_bench(records, count, detailed=True, extra_ttft_ms=hidden.extra_ttft_ms)
            files.append(folder / f"{policy}-{count}.json")
            files[-1].write_text(json.dumps(result))
    return path, files


def bench_of(path: Path, files: Sequence[Path], policy: str | None = "static(k=3)", **more: Any) -> Bench:
    return make_bench(path, read_files(files), {}, policy, **more)


def at_depths(runs: Sequence[Run], depths: Sequence[int]) -> tuple[Run, ...]:
    """The runs with depths that their files do not say, as those of plain decoding do not."""
    return tuple(replace(run, depth=depth) for run, depth in zip(runs, depths, strict=True))
