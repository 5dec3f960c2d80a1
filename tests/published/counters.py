"""Case 12, the dense part: eight clients of a vLLM 0.12 whose counters were published, its GPU not.

Step times and speed-ups are judged apart: the device is assumed, an A100, from the plain step of the
8B model, so a step's time is half an input. The speed of a request is one over its TPOT.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from calibrate.compose.devices import A100, H100, Machine
from calibrate.compose.evaluate import decode_shape, pass_ns
from calibrate.compose.model_files import target_shape
from calibrate.compose.passes import Kernels
from calibrate.compose.tables import Ledger
from sim.against.observed import observed
from sim.scenario.load import load_scenario
from sim.sweep.prepare import make_run
from tests.published.judged import Account, Row, account, error_cell
from tests.published.measure import SCENARIOS, read
from tests.published.surfaces import folders

STEP_LIMIT: Final = 0.10
RATIO_LIMIT: Final = 0.07
BENCHMARKS: Final = {"human-eval": "HumanEval", "canitedit": "CanItEdit"}
METHODS: Final = {"eagle3": "EAGLE-3, k=3", "ngram": "n-gram, k=5"}


class Pair(NamedTuple):
    """One benchmark and drafter: steps of both arms in ms, and the speed-up of a request."""

    benchmark: str
    method: str
    plain: Row
    drafting: Row
    speedup: Row


@cache
def pairs(groundtruth: Path) -> tuple[Pair, ...]:
    """Llama-3.1-8B under both drafters on both benchmarks."""
    table = {
        (row["benchmark"], row["method"]): row
        for row in read(groundtruth / "altria_vllm012_prom_counters.csv")
        if row["model"] == "L31-8B-I"
    }
    return tuple(
        _pair(benchmark, method, table[benchmark, "autoregressive"], table[benchmark, method])
        for benchmark in BENCHMARKS
        for method in METHODS
    )


def _pair(benchmark: str, method: str, plain: dict[str, str], drafting: dict[str, str]) -> Pair:
    scenario = load_scenario(SCENARIOS / f"altria-8b-{BENCHMARKS[benchmark].lower()}-{method}.yaml")
    off, on = (observed(make_run(scenario, policy, seed=1)[0]) for policy in scenario.policies)
    return Pair(
        BENCHMARKS[benchmark],
        METHODS[method],
        Row(float(plain["itl_mean_ms"]), off["itl_mean_ms"], STEP_LIMIT),
        Row(float(drafting["itl_mean_ms"]), on["itl_mean_ms"], STEP_LIMIT),
        Row(
            float(drafting["tps_per_request"]) / float(plain["tps_per_request"]),
            off["tpot_mean_ms"] / on["tpot_mean_ms"],
            RATIO_LIMIT,
        ),
    )


def accounts(groundtruth: Path) -> list[Account]:
    """Speed-ups, step times, and the model that is not simulated."""
    found = pairs(groundtruth)
    steps = [pair.drafting for pair in found] + [pair.plain for pair in found[::2]]
    kernels = "kernels of an A100; host and launches of vLLM 0.10"
    blind, device = "blind, but for the device", "the device assumed from the plain step"
    what = "eight clients, Llama-3.1-8B, EAGLE-3 and n-gram:"
    lacking = "number and kind of GPUs not stated; tensor parallelism is not composed"
    return [
        account(12, f"{what} speed-up", "7 %", kernels, blind, [pair.speedup for pair in found]),
        account(12, f"{what} step times", "10 %", kernels, device, steps),
        account(12, "eight clients, Qwen3-32B", "", lacking, "none", ()),
    ]


# -- the page --------------------------------------------------------------------------------------

HEAD: Final = (
    "benchmark | drafter | plain step, ms | simulated | error | drafting step, ms | simulated | error | "
    "speed-up | simulated | error"
)


def rows(groundtruth: Path) -> Iterable[list[str]]:
    """One line for each benchmark and drafter."""
    for pair in pairs(groundtruth):
        cells = [
            cell
            for row, digits in ((pair.plain, 2), (pair.drafting, 2), (pair.speedup, 3))
            for cell in (f"{row.published:.{digits}f}", f"{row.simulated:.{digits}f}", error_cell(row))
        ]
        yield [pair.benchmark, pair.method, *cells]


def kernels_32b(groundtruth: Path, machine: Machine) -> float:
    """ms of Qwen3-32B's kernels on one device, eight sequences at 300 tokens."""
    where = folders(groundtruth)
    shape = target_shape("model_configs/Qwen--Qwen3-32B.json", "Qwen3-32B", where)
    return pass_ns(Kernels(where, machine, Ledger()).verify(shape), decode_shape(8, 300)) / 1e6


def readings(groundtruth: Path) -> dict[str, str]:
    """Kernels of the larger model on one device of two kinds, for the text."""
    return {
        f"kernels_32b_{name}": f"{kernels_32b(groundtruth, at):.1f}"
        for name, at in (("a100", A100), ("h100", H100))
    }
