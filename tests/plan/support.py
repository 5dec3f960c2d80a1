"""A single-server queue as a scenario: every request takes one step of 10 ms, so theory knows the answer."""

from __future__ import annotations

from pathlib import Path

from calibrate.profile import save_profile
from sim.plan.objective import objective
from sim.plan.probe import Bench, Probe
from sim.scenario.load import load_scenario
from sim.scenario.model import Scenario
from tests.engine.modelled import linear_profile

SERVICE_S = 0.010
QUEUE = """\
profile: linear.json
workload:
  arrival: {{process: poisson, request_rate: {rate}/s}}
  lengths: {{input: 4, output: {output}}}
  num_requests: 1000
engine: {{preset: ideal, kv_blocks: 10000, max_num_seqs: {seqs}}}
policies: [off]
slo: {{ttft: 60ms}}
run: {{seeds: {seeds}}}
"""


def write_queue(folder: Path, rate: float = 100.0, seqs: int = 1, output: int = 1, seeds: int = 3) -> Path:
    """Scenario and profile files; the path of the scenario."""
    save_profile(linear_profile(1e3 * SERVICE_S, 0.0, draft=None), folder / "linear.json")
    path = folder / "queue.yaml"
    path.write_text(QUEUE.format(rate=rate, seqs=seqs, output=output, seeds=seeds), encoding="utf-8")
    return path


def bench(folder: Path, *limits: str, requests: int = 500, router: str = "least_requests") -> Bench:
    """The queue on trial."""
    scenario: Scenario = load_scenario(write_queue(folder))
    asked = objective(scenario, limits, None)
    return Bench(scenario, scenario.policies[0], asked, router, requests)  # type: ignore[arg-type]


def probe(rate: float, *used: float, replicas: int = 1, reason: str = "") -> Probe:
    """A trial of one part with one value per seed."""
    return Probe(rate, replicas, tuple((each,) for each in used), reason, 1000.0 * rate)


def stepwise(capacity: float, rate: float, replicas: int = 1) -> Probe:
    """A trial that holds up to a capacity and not above."""
    return probe(rate, rate / capacity, replicas=replicas)
