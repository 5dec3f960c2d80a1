"""A small valid scenario and ways to read one from text."""

from __future__ import annotations

from pathlib import Path

from sim.errors import ScenarioError
from sim.scenario.load import Loaded, check_document
from sim.scenario.nodes import parse_yaml

BROKEN = Path(__file__).parent.parent / "broken"

VALID = """\
name: small
profile: llama-3.1-8b-h100
drafter: eagle3
acceptance: {process: iid, alpha: 0.7}
workload:
  arrival: {process: poisson, request_rate: 4/s}
  lengths: {input: 512, output: 128}
  num_requests: 500
engine: {preset: vllm_v1, max_num_seqs: 64}
policies:
  - off
  - {policy: static, k: 3}
  - {policy: per_batch_size, table: [[1, 8, 5], [9, 64, 2]]}
  - oracle
slo: {ttft: 1s, tpot: 40ms}
sweep:
  workload.arrival.request_rate: [2/s, 4/s, 8/s]
  engine.max_num_seqs: [32, 64]
run: {seeds: [1, 2], warmup: {requests: 50}, metric: goodput}
"""


def read(text: str, folder: Path = Path()) -> Loaded:
    """The scenario in a text."""
    return check_document(parse_yaml(text, "s.yaml"), folder, "s")


def problems(text: str) -> list[str]:
    """What is wrong with the scenario in a text, without the file's name; nothing if it is good."""
    try:
        read(text)
    except ScenarioError as error:
        return [str(problem).removeprefix("s.yaml:") for problem in error.problems]
    return []
