"""Published ratios beside simulated ones: what is read, what is run, and how they compare."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from sim.scenario.load import load_scenario
from sim.sweep import Finished, run_scenario

ROOT: Final = Path(__file__).resolve().parents[2]
SCENARIOS: Final = ROOT / "scenarios" / "published"
SWEPT: Final = "workload.arrival.max_concurrency"
COMPOSED: Final = {"profile": "llama-3.1-8b-h100"}
DRAFTERS: Final = {"eagle": "eagle3", "ngram": "ngram"}
"""Drafters of the composed profile that stand in for those of the fitted constants."""


@dataclass(frozen=True)
class Arm:
    """One batch size of one scenario: throughput with drafts over that without, and both runs."""

    batch: int
    plain: Finished
    drafting: Finished

    @property
    def ratio(self) -> float:
        """Output tokens per second with speculation over without."""
        return self.drafting.metrics["output_tokens_per_s"] / self.plain.metrics["output_tokens_per_s"]


Arms = dict[int, Arm]
"""By batch size, rising."""


def simulate(stem: str, overrides: Mapping[str, Any] | None = None) -> Arms:
    """Run a published scenario at each of its batch sizes.

    Its first policy is plain decoding, its second drafts. Large batches need more requests than
    small ones to be full most of the time, so their number is ``64 + 3 x batch``.
    """
    scenario = load_scenario(SCENARIOS / f"{stem}.yaml")
    return {int(batch): _arm(stem, int(batch), overrides or {}) for batch in scenario.sweep[SWEPT]}


@cache
def shipped(stem: str) -> Arms:
    """``simulate`` without changes, run once per process."""
    return simulate(stem)


def _arm(stem: str, batch: int, overrides: Mapping[str, Any]) -> Arm:
    one = {"sweep": {}, SWEPT: batch, "workload.num_requests": 64 + 3 * batch}
    runs = run_scenario(load_scenario(SCENARIOS / f"{stem}.yaml", {**overrides, **one})).runs
    plain, drafting = runs.values()
    return Arm(batch, plain, drafting)


def error(simulated: float, published: float) -> float:
    """Relative error."""
    return simulated / published - 1


def read(path: Path) -> list[dict[str, str]]:
    """Rows of a published table, its comment lines left out."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("# ")]
    return list(csv.DictReader(lines))


def crossing(ratios: Mapping[int, float]) -> int:
    """Index of the first batch size, in order, at which the ratio is below 1; their number if none is."""
    return next((i for i, ratio in enumerate(ratios.values()) if ratio < 1), len(ratios))


# -- SpecDecode-Bench, Fig. 1 and 4 ----------------------------------------------------------------


@dataclass(frozen=True)
class BenchCase:
    """One dataset and drafter of Fig. 1; ``limit`` is the relative error that passes."""

    stem: str
    dataset: str
    drafter: str
    published: Mapping[int, float]
    limit: float

    def simulate(self) -> Arms:
        """With the authors' constants."""
        return shipped(self.stem)

    def simulate_composed(self) -> Arms:
        """With kernel measurements in place of the authors' constants."""
        return _with_kernels(self.stem, DRAFTERS[self.drafter])


_STEMS = {"GSM8K": "gsm8k", "CNN/DM": "cnn-dm"}
_LIMITS = {"GSM8K": 0.07, "CNN/DM": 0.10}


@cache
def _with_kernels(stem: str, drafter: str) -> Arms:
    return simulate(stem, {**COMPOSED, "drafter": drafter})


def bench_cases(groundtruth: Path) -> list[BenchCase]:
    """Both datasets under EAGLE, then under n-gram."""
    rows = read(groundtruth / "sdbench_fig1_speedup_vs_batch_h100.csv")

    def case(dataset: str, drafter: str) -> BenchCase:
        published = {
            int(row["batch_size"]): float(row["speedup_token_throughput"])
            for row in rows
            if (row["dataset"], row["method"]) == (dataset, f"{drafter}_k3")
        }
        stem = f"sdbench-{_STEMS[dataset]}-{drafter}"
        return BenchCase(stem, dataset, drafter, published, _LIMITS[dataset])

    return [case(dataset, drafter) for drafter in DRAFTERS for dataset in _STEMS]


def shares(run: Finished) -> dict[str, float]:
    """Percent of a run's step time in drafting, in the target's passes, and in the rest."""
    parts = {"draft": 0.0, "verify": 0.0, "other": 0.0}
    for name, ns in run.breakdown_ns.items():
        key = name.partition(".")[0].replace("eager", "verify")
        parts[key if key in parts else "other"] += ns
    total = sum(parts.values())
    return {name: 100 * ns / total for name, ns in parts.items()}


def published_shares(groundtruth: Path) -> dict[tuple[str, int], dict[str, float]]:
    """Fig. 4 by method and batch size, sampling counted with the overhead as in the constants."""
    return {
        (row["method"], int(row["batch_size"])): {
            "draft": float(row["draft_pct"]),
            "verify": float(row["verify_pct"]),
            "other": float(row["sampling_pct"]) + float(row["overhead_pct"]),
        }
        for row in read(groundtruth / "sdbench_fig4_time_breakdown_h100.csv")
    }


# -- EAGLE-3 paper, Tables 3 and 5 -----------------------------------------------------------------


@dataclass(frozen=True)
class PaperCase:
    """One engine and drafter of the paper; ``tau`` is the input that its scenario states."""

    stem: str
    engine: str
    method: str
    tau: float
    published: Mapping[int, float]

    def simulate(self) -> Arms:
        """With the derived profile of the old engine."""
        return shipped(self.stem)


_TABLES = (("Table3", "sglang", "SGLang 0.4.4, H100", 3), ("Table5", "vllm", "vLLM, A100 or RTX 3090", 2))
_METHODS = (("EAGLE", "eagle"), ("EAGLE-3", "eagle3"))


def paper_cases(groundtruth: Path) -> list[PaperCase]:
    """Both engines, each under EAGLE and EAGLE-3."""
    rows = read(groundtruth / "eagle3_paper_tables3_5.csv")
    taus = {
        (row["method"], int(row["k"])): float(row["acceptance_length"] or "nan")
        for row in reversed(read(groundtruth / "vllm_20780_eagle_depth_sweep_bs1_h100.csv"))
    }
    return [
        PaperCase(
            stem=f"eagle3-paper-{name}-{stem}",
            engine=engine,
            method=method,
            tau=taus[method, k],
            published={
                int(row["batch_size"]): float(row["throughput_ratio"])
                for row in rows
                if (row["table"], row["method"]) == (table, method)
            },
        )
        for table, name, engine, k in _TABLES
        for method, stem in _METHODS
    ]


# -- SpecDecode-Bench, Fig. 2: trees ---------------------------------------------------------------


@dataclass(frozen=True)
class TreeArm:
    """One shape of drafts of Fig. 2; ``tokens`` per round as published on GSM8K (0: not published)."""

    stem: str
    method: str
    name: str
    width: int
    depth: int
    nodes: int
    tokens: float

    def simulate(self) -> Arms:
        """With kernel measurements alone."""
        return shipped(self.stem)

    def simulate_engine(self) -> Arms:
        """With what SGLang takes beside its kernels at batch 1, too."""
        return _in_sglang(self.stem, "eagle3" if self.width == 1 else "eagle3-tree")


CHAIN: Final = TreeArm("sdbench-gsm8k-chain", "eagle3_chain_k3", "chain of 3", 1, 3, 3, 2.25)
TREE_6: Final = TreeArm("sdbench-gsm8k-tree6", "eagle3_tree_k6_depth3_branch2", "tree of 6", 2, 3, 6, 0.0)
TREE_21: Final = TreeArm(
    "sdbench-gsm8k-tree21", "eagle3_tree_k21_depth3_branch4", "tree of 21", 4, 3, 21, 2.92
)
TREE_ARMS: Final = (CHAIN, TREE_6, TREE_21)
SGLANG: Final = "qwen3-8b-h100-sglang059.json"


@cache
def _in_sglang(stem: str, drafter: str) -> Arms:
    return simulate(stem, {"profile": SGLANG, "drafter": drafter})


def tree_ratios(groundtruth: Path, arm: TreeArm, dataset: str = "GSM8K") -> dict[int, float]:
    """Published ratios by batch size."""
    return {
        int(row["batch_size"]): float(row["speedup_token_throughput"])
        for row in read(groundtruth / "sdbench_fig2_tree_vs_chain_h100.csv")
        if (row["dataset"], row["method"]) == (dataset, arm.method)
    }


def order(ratios: Mapping[str, float]) -> tuple[str, ...]:
    """Names from the largest ratio to the smallest."""
    return tuple(sorted(ratios, key=lambda name: -ratios[name]))
