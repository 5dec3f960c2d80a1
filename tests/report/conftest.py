"""One run of twenty policies at three loads, and its report, for every test of the report."""

from __future__ import annotations

from pathlib import Path

import pytest

import sim.report as reports
from sim.report.model import Report
from sim.scenario.load import load_scenario
from sim.sweep import open_results, run_scenario, save
from sim.sweep.results import Results

WICKED = "<script>alert(1)</script> | *x* </style>"
STATICS = "".join(f"  - {{policy: static, k: {k}}}\n" for k in range(1, 9))
GOODPUTS = "".join(f"  - {{policy: goodput, k_max: {k}}}\n" for k in range(1, 9))
SCENARIO = f"""
name: "small {WICKED}"
description: "{WICKED}"
profile: llama-3.1-8b-h100
drafter: eagle3
acceptance: {{process: latent, mean: 0.7, spread: 1.0, correlation: 0.5}}
workload:
  arrival: {{process: poisson, request_rate: 8/s}}
  lengths: {{input: 200, output: 16}}
  num_requests: 12
policies:
  - off
{STATICS}{GOODPUTS}  - {{policy: static, k: 3, label: "{WICKED}"}}
  - {{policy: oracle, k_max: 5}}
  - {{policy: static, k: 0}}
slo: {{ttft: 300ms, tpot: 20ms}}
sweep:
  workload.arrival.request_rate: [4/s, 16/s, 64/s]
run: {{seeds: 2, warmup: none}}
"""


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A results folder of twenty policies at three loads."""
    out = tmp_path_factory.mktemp("run")
    (out / "small.yaml").write_text(SCENARIO)
    save(run_scenario(load_scenario(out / "small.yaml"), out=out), out)
    return out


@pytest.fixture(scope="session")
def results(folder: Path) -> Results:
    return open_results(folder)


@pytest.fixture(scope="session")
def report(results: Results) -> Report:
    for package in ("altair", "vl_convert", "jinja2"):
        pytest.importorskip(package, reason="the extra `report` is not installed")
    return reports.build(results)


@pytest.fixture(scope="session")
def page(report: Report) -> str:
    return reports.html(report)
