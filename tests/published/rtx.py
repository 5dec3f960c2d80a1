"""vLLM without speculation on RTX PRO 6000 cards: LLMServingSim's runs, percentile by percentile.

What vLLM took is LLMServingSim's summary of its own logs (bench/examples/RTXPRO6000/*/validation/summary.txt,
5daddb2, MIT), and so are the errors of its simulator. Lengths and times of sending are the data set's.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

import numpy as np

from sim.results.run_records import RunRecords
from sim.scenario.load import load_scenario
from sim.sweep.prepare import make_run
from tests.published.judged import Account, Row, account, error_cell

SCENARIO: Final = Path(__file__).with_name("rtx_pro_6000.yaml")
LIMITS: Final = {"TTFT": 0.20, "TPOT": 0.10, "E2EL": 0.10}
PERCENTILES: Final = (50, 90, 99)


class Run(NamedTuple):
    """One model: profile and requests; by metric vLLM's percentiles in ms and LLMServingSim's errors."""

    name: str
    profile: str
    lengths: str
    ranks: int
    published: dict[str, tuple[float, float, float]]
    peer: dict[str, tuple[float, float, float]]


RUNS: Final = (
    Run(
        "Llama-3.1-8B, one card",
        "llama-3.1-8b-rtx-pro-6000",
        "sharegpt-llama-3.1-8b-300-sps10.lengths.jsonl",
        1,
        {
            "TTFT": (9442.7, 16852.7, 19755.3),
            "TPOT": (33.4, 36.5, 37.3),
            "E2EL": (29615.6, 35450.7, 37638.8),
        },
        {"TTFT": (-0.086, -0.044, -0.020), "TPOT": (0.0, 0.005, 0.006), "E2EL": (-0.012, -0.018, -0.016)},
    ),
    Run(
        "Qwen3-32B, two cards",
        "qwen3-32b-rtx-pro-6000-tp2",
        "sharegpt-qwen3-32b-300-sps10.lengths.jsonl",
        1,
        {
            "TTFT": (40701.8, 84318.7, 93347.1),
            "TPOT": (84.3, 94.5, 97.1),
            "E2EL": (98648.9, 118256.3, 126337.0),
        },
        {"TTFT": (0.017, 0.009, 0.009), "TPOT": (0.008, 0.009, 0.013), "E2EL": (0.009, 0.008, 0.013)},
    ),
    Run(
        "Qwen3-30B-A3B, two ranks",
        "qwen3-30b-a3b-rtx-pro-6000-dp2-ep2",
        "sharegpt-qwen3-32b-300-sps10.lengths.jsonl",
        2,
        {
            "TTFT": (138.8, 5182.6, 9587.9),
            "TPOT": (48.9, 52.2, 53.3),
            "E2EL": (31462.3, 38448.2, 43901.1),
        },
        {
            "TTFT": (-0.218, -0.109, -0.010),
            "TPOT": (-0.016, -0.008, -0.005),
            "E2EL": (-0.020, -0.018, -0.018),
        },
    ),
)


@cache
def simulated(data: Path, name: str) -> dict[str, tuple[float, ...]]:
    """Percentiles of one run by metric; requests go to the ranks in turn."""
    run = next(each for each in RUNS if each.name == name)
    lines = (data / "llmservingsim" / run.lengths).read_text(encoding="utf-8").splitlines()
    sent = [json.loads(line) for line in lines]
    found = [_served(sent[rank :: run.ranks], run.profile) for rank in range(run.ranks)]
    column = {name: np.concatenate([each.requests[name] for each in found]) for name in found[0].requests}
    first, end = column["first_token_ns"], column["finish_ns"]
    values = {
        "TTFT": first - column["arrival_ns"],
        "TPOT": (end - first) / np.maximum(column["output_tokens"] - 1, 1),
        "E2EL": end - column["arrival_ns"],
    }
    return {metric: tuple(np.percentile(ns, PERCENTILES) / 1e6) for metric, ns in values.items()}


def _served(sent: list[dict[str, Any]], profile: str) -> RunRecords:
    with TemporaryDirectory() as folder:
        trace = Path(folder) / "requests.jsonl"
        trace.write_text("\n".join(json.dumps(_mooncake(each)) for each in sent), encoding="utf-8")
        own = {"profile": profile, "workload.arrival.path": str(trace)}
        scenario = load_scenario(SCENARIO, own)
        return make_run(scenario, scenario.policies[0], seed=1)[0]


def _mooncake(request: dict[str, Any]) -> dict[str, Any]:
    return {
        "timestamp": 1e3 * request["arrival_s"],
        "input_length": request["input_tokens"],
        "output_length": request["output_tokens"],
        "hash_ids": [],
    }


def judged(data: Path, run: Run) -> dict[str, tuple[Row, ...]]:
    """Every percentile of one run by metric."""
    here = simulated(data, run.name)
    return {
        metric: tuple(Row(p, s, LIMITS[metric]) for p, s in zip(values, here[metric], strict=True))
        for metric, values in run.published.items()
    }


def accounts(groundtruth: Path) -> list[Account]:
    """All percentiles of all runs; case 0, as the ground truth has no number for them."""
    rows = [
        row
        for run in RUNS
        for of_metric in judged(groundtruth.parent / "data", run).values()
        for row in of_metric
    ]
    return [
        account(
            0,
            "vLLM 0.19 on RTX PRO 6000, no speculation: TTFT, TPOT, E2EL at p50, p90, p99",
            "20, 10, 10 %",
            "LLMServingSim's layer measurements added up; engine flags from the runs",
            "blind, but for a first look at the steps' means",
            rows,
        )
    ]


# -- the page --------------------------------------------------------------------------------------

HEAD: Final = "run | metric | " + " | ".join(
    f"p{p}, ms | simulated | error | LLMServingSim's" for p in PERCENTILES
)


def rows(groundtruth: Path) -> Iterable[list[str]]:
    """One line for each run and metric."""
    for run in RUNS:
        for metric, of_metric in judged(groundtruth.parent / "data", run).items():
            cells = [
                cell
                for row, peer in zip(of_metric, run.peer[metric], strict=True)
                for cell in (
                    f"{row.published:,.1f}",
                    f"{row.simulated:,.1f}",
                    error_cell(row),
                    f"{100 * peer:+.1f} %",
                )
            ]
            yield [run.name, metric, *cells]
