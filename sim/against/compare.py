"""Measured beside simulated, metric by metric, and how large a difference must be to mean anything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import log, sqrt
from typing import Final

import numpy as np

from sim.against.bench import Bench, Simulated
from sim.against.measured import ACCEPTED, COMPARED

LEAST: Final = {"acceptance_length": 0.02, "tokens_per_chunk": 0.02, "prompt_tokens_mean": 0.01}
_LEAST_TIME: Final = 0.03
_LEAST_TTFT: Final = 0.10
_DEVIATIONS: Final = 3.0
"""Differences below these shares say nothing: engines repeat a run to 1 or 2 %, their TTFT less well,
and a chance of one in a hundred lies beyond three standard deviations."""


@dataclass(frozen=True)
class Line:
    """One metric of one run: measured, simulated, and the standard deviation between seeds."""

    metric: str
    measured: float
    simulated: float
    deviation: float

    @property
    def error(self) -> float:
        """Simulated over measured, less one."""
        return self.simulated / self.measured - 1


def lines(bench: Bench, number: int, simulated: Simulated | None = None) -> tuple[Line, ...]:
    """Every metric that both have, in the order of ``COMPARED``."""
    found = simulated or bench.simulated(number)
    measured = bench.runs[number].metrics
    return tuple(
        Line(name, measured[name], found.mean[name], found.deviation[name])
        for name in COMPARED
        if name in measured and found.mean.get(name)
    )


def tolerances(bench: Bench) -> Mapping[str, float]:
    """By metric, the share below which a difference is no difference: chance, pooled over runs, or least."""
    spreads: dict[str, list[float]] = {}
    for number in range(len(bench.runs)):
        for line in lines(bench, number):
            spreads.setdefault(line.metric, []).append(line.deviation / line.simulated)
    one_run = sqrt(1 + 1 / len(bench.seeds))
    return {
        name: max(least(name), _DEVIATIONS * one_run * float(np.sqrt(np.mean(np.square(values)))))
        for name, values in spreads.items()
    }


def least(metric: str) -> float:
    """The share below which a difference in this metric is never meant."""
    return LEAST.get(metric, _LEAST_TTFT if metric.startswith("ttft") else _LEAST_TIME)


# -- step time -------------------------------------------------------------------------------------


def step_ms(bench: Bench, number: int, metrics: Mapping[str, float]) -> float | None:
    """A step's time as a client sees it, by the same rule on both sides; ``None`` if it cannot.

    TPOT for plain decoding, TPOT x acceptance length with drafts, else ITL: one chunk a step.
    """
    known = bench.runs[number].metrics
    tpot = "tpot_mean_ms" if "tpot_mean_ms" in known else "tpot_by_token_mean_ms"
    if not bench.drafts(number):
        return metrics.get(tpot) if tpot in known else None
    if tpot in known and "acceptance_length" in known:
        return metrics[tpot] * metrics["acceptance_length"]
    return metrics.get("itl_mean_ms") if "itl_mean_ms" in known else None


def step_error(bench: Bench, number: int, simulated: Simulated) -> float | None:
    """Log of measured over simulated step time."""
    measured = step_ms(bench, number, bench.runs[number].metrics)
    found = step_ms(bench, number, simulated.mean)
    return log(measured / found) if measured and found else None


def acceptance_error(bench: Bench, number: int, simulated: Simulated) -> float | None:
    """Log of measured over simulated tokens per round; ``None`` if unknown."""
    name = accepted_by(bench, number)
    if name is None:
        return None
    return log(bench.runs[number].metrics[name] / simulated.mean[name])


def accepted_by(bench: Bench, number: int) -> str | None:
    """The metric that tells of this run's acceptance: counters, else tokens per streamed chunk."""
    if not bench.drafts(number):
        return None
    return next((name for name in ACCEPTED if name in bench.runs[number].metrics), None)
