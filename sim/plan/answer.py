"""The plan of one case: the highest rate of one replica, the fleet for the peak, or why there is none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sim.fleet.config import RouterName
from sim.plan.memory import Held, held
from sim.plan.objective import Limit, Objective
from sim.plan.probe import Alone, Bench, Probe
from sim.plan.search import Found, highest
from sim.plan.size import Size, size
from sim.plan.traffic import steady
from sim.plan.what_if import Case
from sim.sweep.prepare import fresh, prepare

TOLERANCE: Final = 0.03
"""How closely the highest rate of one replica is found."""
BEYOND: Final = 1.1
"""The check tries this much more than the highest rate."""
_OUT_OF_REACH: Final = 1.1
"""A part that takes this much of its limit with no other request about is not searched for."""
_START: Final = 12.0
"""Requests at once at which the search begins."""
_FEWEST: Final = 0.1
_ROUGH: Final = 0.1
_NEAR: Final = 1.08
_MOST: Final = 1e4
_CHECK_SEEDS: Final = 10
_WHY: Final = {
    "ttft": "the prefill of the prompts alone",
    "tpot": "what steps at batch 1 take",
    "e2el": "prefill and steps at batch 1",
}


@dataclass(frozen=True)
class Question:
    """What every case is asked: the objective at a peak, behind a router.

    ``requests`` is the least number in one run; ``check`` asks for trials of the answer
    with other seeds.
    """

    objective: Objective
    peak_per_s: float
    router: RouterName
    requests: int
    check: bool = False


@dataclass(frozen=True)
class Answer:
    """The plan of one case; ``refusal`` says why there is none, and is empty if there is one.

    ``error`` is the relative error that the profile states (0: none), ``gpus`` the GPUs of a replica,
    ``checked`` the trials at the highest rate of one replica and at 1.1 times it, with other seeds.
    """

    case: Case
    gpus: int
    error: float
    memory: Held
    alone: Alone
    found: Found
    size: Size | None = None
    refusal: str = ""
    checked: tuple[Probe, Probe] | None = None

    @property
    def label(self) -> str:
        """The policy's name."""
        return self.case.policy.title

    @property
    def bound(self) -> bool:
        """Whether the policy is clairvoyant: a limit, never recommended."""
        return self.case.bound

    @property
    def rate_per_s(self) -> float:
        """Highest rate of one replica; 0 if none holds."""
        return self.found.holds.rate_per_s if self.found.holds else 0.0


def answer(case: Case, question: Question) -> Answer:
    """Plan one case."""
    bench = Bench(case.scenario, case.policy, question.objective, question.router, question.requests)
    sample = steady(case.scenario, question.peak_per_s, question.requests)
    setup = prepare(sample, case.policy, case.scenario.run.seeds[0])
    memory = held(setup, fresh(sample, case.policy, setup))
    error = setup.profile.error.relative if setup.profile.error else 0.0
    about = (case, setup.profile.device.count, error, memory)
    alone = bench.alone()
    if max(alone.used) > _OUT_OF_REACH:
        return Answer(*about, alone, Found(None, None), refusal=_hopeless(question.objective, alone))
    found = _one_replica(bench, alone)
    if found.holds is None:
        return Answer(*about, alone, found, refusal=_never(question.objective, found))
    fleet = size(
        lambda rate, replicas: bench.probe(rate, replicas, alone.e2el_s),
        question.peak_per_s,
        found.holds.rate_per_s,
    )
    refusal = "" if fleet else "no number of replicas meets it at the peak behind this router"
    checked = _checked(bench, found.holds, alone) if question.check else None
    return Answer(*about, alone, found, fleet, refusal, checked)


def _one_replica(bench: Bench, alone: Alone) -> Found:
    """Highest rate of one replica: roughly under the first seed, then near by under all.

    The search begins at the load at which a dozen requests would run at once.
    """
    one = 1 / alone.e2el_s
    limits = (_FEWEST * one, _MOST * one)
    first = bench.scenario.run.seeds[:1]
    rough = highest(lambda rate: bench.probe(rate, 1, alone.e2el_s, first), _START * one, 2.0, _ROUGH, limits)
    if rough.holds is None or rough.fails is None:
        return rough
    return highest(
        lambda rate: bench.probe(rate, 1, alone.e2el_s), rough.holds.rate_per_s, _NEAR, TOLERANCE, limits
    )


def _checked(bench: Bench, holds: Probe, alone: Alone) -> tuple[Probe, Probe]:
    """The highest rate, and 1.1 times it, in runs twice as long under seeds that the search never saw."""
    used = bench.scenario.run.seeds
    first = max(used) + 1
    seeds = range(first, first + max(_CHECK_SEEDS, 2 * len(used)))
    one, more = (
        bench.probe(factor * holds.rate_per_s, 1, alone.e2el_s, seeds, longer=2) for factor in (1.0, BEYOND)
    )
    return one, more


def binding(objective: Objective, probe: Probe) -> str:
    """What ends a rate: the part that uses most of its limit, or the growing backlog."""
    return "stable state" if probe.reason else objective.parts[probe.binding].name


def _hopeless(objective: Objective, alone: Alone) -> str:
    """Which part is missed with no other request about, and what it is then."""
    part, used = max(zip(objective.parts, alone.used, strict=True), key=lambda pair: pair[1])
    why = f" ({_WHY[part.latency]})" if isinstance(part, Limit) else ""
    return f"{part.text} is out of reach: {part.says(used)} with one request at a time{why}"


def _never(objective: Objective, found: Found) -> str:
    """Which part is missed at the lowest rate that was tried."""
    fails = found.fails
    if fails is None:
        return "no rate was found"
    if fails.reason:
        return f"not even {fails.rate_per_s:.2g} requests/s are stable: {fails.reason}"
    part, mean = objective.parts[fails.binding], fails.mean[fails.binding]
    return f"{part.text} is missed at {fails.rate_per_s:.2g} requests/s already: {part.says(mean)}"
