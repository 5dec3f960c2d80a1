"""How many requests run at once, before anything is simulated: Little's law and the step costs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sim.cost.step_cost import StepCost
from sim.scenario.model import ScenarioWorkload
from sim.units import NS_PER_S
from sim.workload.arrival_config import TraceArrival
from sim.workload.build import build_requests
from sim.workload.requests import Requests

_ENOUGH = 20_000
"""Requests drawn for an estimate; more would only take time."""


@dataclass(frozen=True)
class Load:
    """What the requests of one cell ask for: ``rate_per_s`` of them, with mean lengths in tokens."""

    requests: Requests
    rate_per_s: float
    prompt_tokens: float
    output_tokens: float

    @property
    def context_tokens(self) -> float:
        """KV tokens of a request half-way through its output."""
        return self.prompt_tokens + self.output_tokens / 2


def load_of(workload: ScenarioWorkload, locate: Callable[[str], Path]) -> Load:
    """The first requests of seed 0; raises ``InputError`` when they cannot be made."""
    if not isinstance(workload.arrival, TraceArrival) and (workload.num_requests or _ENOUGH + 1) > _ENOUGH:
        workload = workload.model_copy(update={"num_requests": _ENOUGH})
    requests = build_requests(workload, 0, locate)
    span_s = int(requests.arrival_ns[-1]) / NS_PER_S
    return Load(
        requests,
        len(requests) / span_s if span_s else math.inf,
        float(np.mean(requests.prompt_tokens)),
        float(np.mean(requests.output_tokens)),
    )


def running(load: Load, cost: StepCost, depth: int, tokens_per_round: float, cap: int) -> int:
    """Requests that run at once at a uniform depth, at most ``cap``.

    N = rate x rounds per request x time of a round (Little's law), where the time depends on N
    and on the prefill work that arrives meanwhile; iterated from N = 1, which finds the smallest
    solution because the time never falls as N rises.
    """
    if math.isinf(load.rate_per_s):
        return cap
    count = 1
    while count < cap:
        round_s = _round_ns(load, cost, depth, count) / NS_PER_S
        wanted = math.ceil(load.rate_per_s * load.output_tokens / tokens_per_round * round_s)
        if wanted <= count:
            return count
        count = wanted
    return cap


def _round_ns(load: Load, cost: StepCost, depth: int, count: int) -> float:
    """One decode round of ``count`` sequences with its share of the prefill tokens."""
    decode_ns = float(cost.round_ns(count, depth, count * load.context_tokens))
    tokens, most = count * (depth + 1), len(cost.verify.tables["tokens"]) - 1
    prefill = load.rate_per_s * load.prompt_tokens * decode_ns / NS_PER_S
    mixed = min(most, tokens + round(prefill))
    return decode_ns + cost.verify.ns(mixed, count, count) - cost.verify.ns(min(most, tokens), count, count)
