"""One point of the map as a run: the scenario's own requests, fewer, at another load and length."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sim.engine.simulate import Setup
from sim.map.acceptance import with_mean
from sim.policies.config import PolicyConfig
from sim.scenario.model import Scenario
from sim.sweep.prepare import prepare
from sim.units import NS_PER_S
from sim.workload.arrival_config import PhasesArrival, ProfileArrival, TraceArrival
from sim.workload.requests import Int64, Requests


@dataclass(frozen=True)
class Place:
    """What a point changes in the scenario; ``None`` leaves a thing as it is.

    ``prompts`` and ``outputs`` are factors on every length. ``requests`` are sent. An open loop's
    arrivals keep their order and their relative gaps, stretched to exactly ``rate_per_s``.
    """

    requests: int
    rate_per_s: float | None = None
    in_flight: int | None = None
    acceptance: float | None = None
    prompts: float = 1.0
    outputs: float = 1.0

    @property
    def plain(self) -> Place:
        """The same without acceptance, which plain decoding never meets."""
        return replace(self, acceptance=None)


def setup_at(scenario: Scenario, place: Place, policy: PolicyConfig, seed: int) -> Setup:
    """Everything one run at that place needs."""
    if place.acceptance is not None:
        scenario = with_mean(scenario, place.acceptance)
    setup = prepare(fewer(scenario, place.requests), policy, seed)
    return replace(setup, requests=_requests(setup.requests, place, setup.engine.max_model_len))


def fewer(scenario: Scenario, count: int) -> Scenario:
    """The scenario with ``count`` requests, as far as its arrivals go on for so long."""
    workload = scenario.workload
    change: dict[str, Any] = {"num_requests": count, "duration": None}
    if isinstance(workload.arrival, TraceArrival):
        limit = min(count, workload.arrival.limit or count)
        change = {"arrival": workload.arrival.model_copy(update={"limit": limit}), "num_requests": None}
    elif isinstance(workload.arrival, PhasesArrival | ProfileArrival):
        return scenario  # they may come to rest before so many requests; cut afterwards
    return scenario.model_copy(update={"workload": workload.model_copy(update=change)})


def _requests(drawn: Requests, place: Place, longest: int) -> Requests:
    first = slice(0, place.requests)
    prompt, output = _lengths(drawn.prompt_tokens[first], drawn.output_tokens[first], place, longest)
    prefix = drawn.prefix_tokens
    return Requests(
        arrival_ns=_arrivals(drawn.arrival_ns[first], place),
        prompt_tokens=prompt,
        output_tokens=output,
        class_id=drawn.class_id[first],
        classes=drawn.classes,
        max_concurrency=place.in_flight or drawn.max_concurrency,
        prefix_group=None if drawn.prefix_group is None else drawn.prefix_group[first],
        prefix_tokens=None if prefix is None else _scaled(prefix[first], place.prompts, 0),
        abort_ns=None if drawn.abort_ns is None else drawn.abort_ns[first],
        timeout_ns=drawn.timeout_ns,
    )


def _arrivals(arrival_ns: Int64, place: Place) -> Int64:
    if place.in_flight is not None:
        return np.zeros_like(arrival_ns)
    if place.rate_per_s is None or not arrival_ns[-1]:
        return arrival_ns
    whole = (len(arrival_ns) - 1) / place.rate_per_s * NS_PER_S
    start = arrival_ns - arrival_ns[0]
    stretched: Int64 = np.rint(start * (whole / max(start[-1], 1))).astype(np.int64)
    return stretched


def _lengths(prompt: Int64, output: Int64, place: Place, longest: int) -> tuple[Int64, Int64]:
    """Scaled lengths, cut where the model's context ends."""
    if place.prompts == place.outputs == 1:
        return prompt, output
    output = np.minimum(_scaled(output, place.outputs, 1), longest - 1)
    return np.minimum(_scaled(prompt, place.prompts, 1), longest - output), output


def _scaled(tokens: Int64, factor: float, least: int) -> Int64:
    scaled: Int64 = np.maximum(np.rint(tokens * factor), least).astype(np.int64)
    return scaled
