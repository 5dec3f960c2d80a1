"""The traffic that a plan is made for: the scenario's requests, arriving steadily at one rate."""

from __future__ import annotations

from sim.errors import InputError
from sim.scenario.model import Scenario, ScenarioWorkload
from sim.workload.arrival_config import (
    ClosedArrival,
    GammaArrival,
    PhasesArrival,
    PoissonArrival,
    ProfileArrival,
    TraceArrival,
)
from sim.workload.arrivals import rate_curve

_SPARSE_PER_S = 1e-4
"""A rate at which recorded requests never meet."""


def peak_of(scenario: Scenario) -> float:
    """The scenario's highest rate, requests per second; ``InputError`` where it has none of its own."""
    arrival = scenario.workload.arrival
    if isinstance(arrival, ClosedArrival | TraceArrival):
        what = "a closed loop" if isinstance(arrival, ClosedArrival) else "a trace"
        raise InputError(f"{what} has no rate to plan for; give --peak, for example --peak 40/s")
    return rate_curve(arrival, scenario.locate).peak_per_s


def steady(scenario: Scenario, rate_per_s: float, count: int) -> Scenario:
    """The scenario with ``count`` requests at a mean rate that does not change.

    A rate that moves with time becomes a constant one with gaps of the same variation; a closed
    loop becomes Poisson arrivals; a trace keeps its own arrivals, closer or farther apart, and has
    no more requests than it recorded.
    """
    workload, arrival = scenario.workload, scenario.workload.arrival
    if isinstance(arrival, TraceArrival):
        read = arrival.model_copy(update={"limit": min(count, arrival.limit or count)})
        update: dict[str, object] = {"arrival": read, "num_requests": None, "duration": None}
    else:
        update = {"arrival": _unchanging(arrival), "num_requests": count, "duration": None}
    return _with(scenario, workload.model_copy(update=update).at_rate(rate_per_s))


def one_at_a_time(scenario: Scenario, count: int) -> Scenario:
    """The scenario with ``count`` requests, each sent when the one before is answered."""
    if isinstance(scenario.workload.arrival, TraceArrival):
        return steady(scenario, _SPARSE_PER_S, count)
    alone = ClosedArrival(process="closed", max_concurrency=1)
    update = {"arrival": alone, "num_requests": count, "duration": None}
    return _with(scenario, scenario.workload.model_copy(update=update))


def _unchanging(arrival: object) -> object:
    """Arrivals of the same kind whose rate is constant; the rate itself is set afterwards."""
    if isinstance(arrival, PoissonArrival | GammaArrival):
        return arrival.model_copy(update={"normalise": False})
    if isinstance(arrival, ClosedArrival):
        return PoissonArrival.model_validate({"process": "poisson", "request_rate": "1/s"})
    if isinstance(arrival, PhasesArrival | ProfileArrival):
        gaps = {"process": "gamma", "request_rate": "1/s", "burstiness": arrival.shape}
        return GammaArrival.model_validate({**gaps, "max_concurrency": arrival.max_concurrency})
    return arrival


def _with(scenario: Scenario, workload: ScenarioWorkload) -> Scenario:
    return scenario.model_copy(update={"workload": workload})
