"""A scenario's requests on another machine: fewer of them, at another pace, or as many as fit."""

from __future__ import annotations

from typing import Any

from sim.scenario.model import ScenarioWorkload
from sim.workload.arrival_config import (
    Arrival,
    ClosedArrival,
    Phase,
    PhasesArrival,
    ProfileArrival,
    TraceArrival,
)

AT_ONCE = 1e-12
"""Time scale of a trace whose requests are all there from the start."""


def is_open(workload: ScenarioWorkload) -> bool:
    """Whether requests come by the clock."""
    return not isinstance(workload.arrival, ClosedArrival)


def filled(workload: ScenarioWorkload, in_flight: int, requests: int) -> ScenarioWorkload:
    """The same kind of requests, ``in_flight`` of them at any time."""
    if isinstance(workload.arrival, TraceArrival):
        held = {"max_concurrency": in_flight, "time_scale": AT_ONCE, "request_rate": None, "jitter": 0}
        traced = workload.arrival.model_copy(update=held)
        return limited(workload.model_copy(update={"arrival": traced, "duration": None}), requests, requests)
    closed = ClosedArrival(process="closed", max_concurrency=in_flight)
    return workload.model_copy(update={"arrival": closed, "num_requests": requests, "duration": None})


def limited(workload: ScenarioWorkload, requests: int, of: int) -> ScenarioWorkload:
    """Only ``requests`` of the ``of`` requests; a rate that changes runs through its course all the same."""
    arrival, share = workload.arrival, min(requests / of, 1.0)
    if isinstance(arrival, TraceArrival):
        limit = min(requests, arrival.limit or requests)
        return workload.model_copy(
            update={"arrival": arrival.model_copy(update={"limit": limit}), "num_requests": None}
        )
    changed: dict[str, Any] = {"num_requests": min(requests, of)}
    if isinstance(arrival, PhasesArrival | ProfileArrival):
        end_ns = workload.end_ns
        changed["arrival"] = _stretched(arrival, share)
        changed["duration"] = None if end_ns is None else _ns(end_ns * share)
    return workload.model_copy(update=changed)


def faster(workload: ScenarioWorkload, factor: float) -> ScenarioWorkload:
    """The same requests in the same order, everything that happens by the clock ``factor`` times as fast."""
    changed: dict[str, Any] = {"arrival": _faster(workload.arrival, factor)}
    if workload.duration is not None:
        changed["duration"] = _ns(workload.duration / factor)
    return workload.model_copy(update=changed)


def _faster(arrival: Arrival, factor: float) -> Arrival:
    if isinstance(arrival, PhasesArrival | ProfileArrival):
        arrival = _stretched(arrival, 1 / factor)
    rate = getattr(arrival, "request_rate", None)
    if rate is not None:
        return arrival.model_copy(update={"request_rate": rate * factor})
    if isinstance(arrival, TraceArrival):
        # Jitter is drawn in the trace's own time, and scaled with it.
        return arrival.model_copy(update={"time_scale": (arrival.time_scale or 1.0) / factor})
    if isinstance(arrival, PhasesArrival | ProfileArrival):
        return arrival.model_copy(update={"rate_scale": (arrival.rate_scale or 1.0) * factor})
    return arrival


def _stretched(arrival: PhasesArrival | ProfileArrival, factor: float) -> PhasesArrival | ProfileArrival:
    """The same rates over ``factor`` times the time."""
    if isinstance(arrival, ProfileArrival):
        return arrival.model_copy(update={"time_scale": arrival.time_scale * factor})
    phases = tuple(_phase(phase, factor) for phase in arrival.phases)
    return arrival.model_copy(update={"phases": phases})


def _phase(phase: Phase, factor: float) -> Phase:
    return phase.model_copy(update={"duration": _ns(phase.duration * factor)})


def _ns(duration: float) -> int:
    return max(round(duration), 1)
