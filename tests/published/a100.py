"""Case 1: EAGLE-3 at depth 5 on an A100 over the load, in absolute numbers.

Two sets of inputs. *Not fitted*: nothing that the study measured about time; kernels from tables, what
is around them from the engine's code. *Shipped*: the profile ``llama-3.1-8b-a100``, some of whose numbers
come from this study; what they were taken from is not judged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from sim.against.observed import observed
from sim.scenario.load import load_scenario
from sim.sweep.prepare import make_run
from tests.published.judged import Account, Row, account, error_cell
from tests.published.measure import SCENARIOS, SWEPT, read

FILE: Final = "a100_llama31_8b_eagle3_factorial_means.csv"
REQUESTS: Final = {1: 64, 8: 160, 32: 320, 64: 512}
"""By clients, as the study sent."""

WORKLOADS: Final = {"gsm8k": "GSM8K", "humaneval": "HumanEval"}
ARMS: Final = {"none": "plain", "eagle3": "EAGLE-3"}
METRICS: Final = (
    ("goodput_tok_s", "output_tokens_per_s", 0.10),
    ("itl_p50_ms", "itl_p50_ms", 0.10),
    ("ttft_mean_ms", "ttft_mean_ms", 0.20),
)
"""Column of the table, metric here, relative error that passes (ground truth's suggestion)."""

RATIO_LIMIT: Final = 0.07
CODE: Final = "llama-3.1-8b-a100-vllm024.json"
SHIPPED: Final = "llama-3.1-8b-a100"
SPENT: Final = frozenset((arm, 1, metric) for arm in ARMS for metric in ("goodput_tok_s", "itl_p50_ms"))
"""What the shipped profile's host and launch times were taken from: (arm, clients, column)."""


@dataclass(frozen=True)
class Cell:
    """One arm at one load: what was published, and what a client of the simulated engine sees."""

    workload: str
    arm: str
    clients: int
    published: dict[str, float]
    simulated: dict[str, float]

    def row(self, column: str) -> Row:
        """One of ``METRICS``, by the table's name."""
        _, metric, limit = next(each for each in METRICS if each[0] == column)
        return Row(self.published[column], self.simulated[metric], limit)


@cache
def cells(groundtruth: Path, profile: str) -> tuple[Cell, ...]:
    """Both workloads at every load, plain then drafting, with one profile."""
    published = {
        (row["workload"], row["spec"], int(row["concurrency"])): {
            column: float(row[column]) for column, _, _ in METRICS
        }
        for row in read(groundtruth / FILE)
    }
    return tuple(
        Cell(workload, arm, clients, published[workload, arm, clients], seen)
        for workload in WORKLOADS
        for clients in REQUESTS
        for arm, seen in zip(ARMS, _simulate(workload, clients, profile), strict=True)
    )


def _simulate(
    workload: str, clients: int, profile: str, change: Mapping[str, Any] = MappingProxyType({})
) -> list[dict[str, float]]:
    """What the client of each arm measures, ramp and drain included, as the study's client did."""
    own = {SWEPT: clients, "workload.num_requests": REQUESTS[clients], "profile": profile, "sweep": {}}
    scenario = load_scenario(SCENARIOS / f"a100-{workload}.yaml", {**own, **change})
    return [observed(make_run(scenario, policy, seed=1)[0]) for policy in scenario.policies]


def ratios(groundtruth: Path, profile: str) -> dict[tuple[str, int], Row]:
    """Speed-up in tokens per second by workload and clients."""
    found = cells(groundtruth, profile)
    return {
        (plain.workload, plain.clients): Row(
            drafting.published["goodput_tok_s"] / plain.published["goodput_tok_s"],
            drafting.simulated["output_tokens_per_s"] / plain.simulated["output_tokens_per_s"],
            RATIO_LIMIT,
        )
        for plain, drafting in zip(found[::2], found[1::2], strict=True)
    }


def judged(groundtruth: Path, profile: str) -> list[Row]:
    """Every row that was not used to make the profile."""
    spent = SPENT if profile == SHIPPED else frozenset()
    rows = [
        cell.row(column)
        for cell in cells(groundtruth, profile)
        for column, _, _ in METRICS
        if (cell.arm, cell.clients, column) not in spent
    ]
    loads = [row for (_, clients), row in ratios(groundtruth, profile).items() if clients > 1 or not spent]
    return rows + loads


def accounts(groundtruth: Path) -> list[Account]:
    """With nothing fitted, then with what the shipped profile takes from the study."""
    what = "A100, EAGLE-3 k=5 over clients: tok/s, ITL, TTFT, speed-up"
    mark = "10, 10, 20, 7 %"
    return [
        account(1, what, mark, inputs, kind, judged(groundtruth, profile))
        for profile, inputs, kind in (
            (
                CODE,
                "kernels from tables; host, launches and attention's tiles from vLLM 0.24's code",
                "no time of the study; which mechanisms to look for was known",
            ),
            (
                SHIPPED,
                "shipped profile",
                "host, launches from one client of this study; those rows left out",
            ),
        )
    ]


# -- the page --------------------------------------------------------------------------------------

HEAD: Final = (
    "workload | arm | clients | tok/s | not fitted | shipped | ITL p50, ms | not fitted | shipped | TTFT, ms "
    "| not fitted | shipped"
)
RATIO_HEAD: Final = "workload | clients | speed-up | not fitted | error | shipped | error"
WORTH_HEAD: Final = "workload | arm | " + " | ".join(
    f"TTFT, {clients} clients, ms | simulated | synchronous" for clients in (8, 32)
)


def rows(groundtruth: Path) -> Iterable[list[str]]:
    """Published numbers with the errors of both sets of inputs."""
    for own, shipped in zip(cells(groundtruth, CODE), cells(groundtruth, SHIPPED), strict=True):
        line = [WORKLOADS[own.workload], ARMS[own.arm], str(own.clients)]
        for column, _, _ in METRICS:
            one, other = own.row(column), shipped.row(column)
            spent = (own.arm, own.clients, column) in SPENT
            line += [
                f"{one.published:,.1f}",
                error_cell(one),
                f"({error_cell(other)})" if spent else error_cell(other),
            ]
        yield line


def ratio_rows(groundtruth: Path) -> Iterable[list[str]]:
    """Speed-ups, published and simulated."""
    shipped = ratios(groundtruth, SHIPPED)
    for key, own in ratios(groundtruth, CODE).items():
        other = shipped[key]
        spent = error_cell(other) if key[1] > 1 else f"({error_cell(other)})"
        yield [
            WORKLOADS[key[0]],
            str(key[1]),
            f"{own.published:.3f}",
            f"{own.simulated:.3f}",
            error_cell(own),
            f"{other.simulated:.3f}",
            spent,
        ]


@cache
def _synchronous() -> dict[tuple[str, str, int], float]:
    """Mean TTFT in ms by workload, arm and clients of an engine that schedules in turn."""
    return {
        (workload, arm, clients): seen["ttft_mean_ms"]
        for workload in WORKLOADS
        for clients in (8, 32)
        for arm, seen in zip(
            ARMS, _simulate(workload, clients, CODE, {"engine.async_scheduling": False}), strict=True
        )
    }


def worth_rows(groundtruth: Path) -> Iterable[list[str]]:
    """TTFT with and without asynchronous scheduling, all other inputs the same."""
    found = {(c.workload, c.arm, c.clients): c for c in cells(groundtruth, CODE)}
    synchronous = _synchronous()
    for workload, title in WORKLOADS.items():
        for arm, name in ARMS.items():
            line = [title, name]
            for clients in (8, 32):
                row = found[workload, arm, clients].row("ttft_mean_ms")
                other = Row(row.published, synchronous[workload, arm, clients], row.limit)
                line += [f"{row.published:.1f}", error_cell(row), error_cell(other)]
            yield line
