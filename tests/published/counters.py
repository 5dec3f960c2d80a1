"""Case 12, the dense part: eight clients of a vLLM 0.12 whose counters were published, its GPU not.

Step times and speed-ups are judged apart: the device is assumed, an A100 (two for the 32B model), from
the plain steps, so a step's time is half an input. The speed of a request is one over its TPOT.
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
BENCHMARKS: Final = {"human-eval": "HumanEval", "canitedit": "CanItEdit", "mtbench": "MT-Bench"}
METHODS: Final = {"eagle3": "EAGLE-3, k=3", "ngram": "n-gram, k=5"}
MODELS: Final = {"L31-8B-I": "Llama-3.1-8B", "Qwen3-32B": "Qwen3-32B"}
STEMS: Final = {"L31-8B-I": "altria-8b", "Qwen3-32B": "altria-32b"}
CASES: Final = (
    *(("L31-8B-I", benchmark, method) for benchmark in ("human-eval", "canitedit") for method in METHODS),
    *(("Qwen3-32B", benchmark, "eagle3") for benchmark in BENCHMARKS),
)
"""Model, benchmark and drafter, by the table's names."""


class Pair(NamedTuple):
    """One benchmark and drafter: steps of both arms in ms, and the speed-up of a request."""

    model: str
    benchmark: str
    method: str
    plain: Row
    drafting: Row
    speedup: Row


def stem(model: str, benchmark: str, method: str) -> str:
    """Name of the scenario that stands for one of ``CASES``."""
    return f"{STEMS[model]}-{BENCHMARKS[benchmark].lower()}-{method}"


@cache
def pairs(groundtruth: Path) -> tuple[Pair, ...]:
    """Each of ``CASES``."""
    table = {
        (row["model"], row["benchmark"], row["method_dir"]): row
        for row in read(groundtruth / "altria_vllm012_prom_counters.csv")
    }
    return tuple(_pair(case, table[(*case[:2], "autoregressive")], table[case]) for case in CASES)


def _pair(case: tuple[str, str, str], plain: dict[str, str], drafting: dict[str, str]) -> Pair:
    model, benchmark, method = case
    scenario = load_scenario(SCENARIOS / f"{stem(*case)}.yaml")
    off, on = (observed(make_run(scenario, policy, seed=1)[0]) for policy in scenario.policies)
    return Pair(
        MODELS[model],
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
    """Speed-ups and step times, model by model."""
    kernels = "kernels of an A100; host and launches of vLLM 0.10"
    blind, device = "blind, but for the device", "the device assumed from the plain step"
    found = []
    for model, cards in (("Llama-3.1-8B", ""), ("Qwen3-32B", ", two cards")):
        own = [pair for pair in pairs(groundtruth) if pair.model == model]
        plain = {pair.benchmark: pair.plain for pair in own}
        steps = [*(pair.drafting for pair in own), *plain.values()]
        what = f"eight clients, {model}{cards}:"
        found += [
            account(12, f"{what} speed-up", "7 %", kernels, blind, [pair.speedup for pair in own]),
            account(12, f"{what} step times", "10 %", kernels, device, steps),
        ]
    return found


# -- the page --------------------------------------------------------------------------------------

HEAD: Final = (
    "model | benchmark | drafter | plain step, ms | simulated | error | drafting step, ms | simulated "
    "| error | speed-up | simulated | error"
)


def rows(groundtruth: Path) -> Iterable[list[str]]:
    """One line for each benchmark and drafter."""
    for pair in pairs(groundtruth):
        cells = [
            cell
            for row, digits in ((pair.plain, 2), (pair.drafting, 2), (pair.speedup, 3))
            for cell in (f"{row.published:.{digits}f}", f"{row.simulated:.{digits}f}", error_cell(row))
        ]
        yield [pair.model, pair.benchmark, pair.method, *cells]


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
