"""What the campaign runs: loads, requests, luck and policies, the same for vLLM and the simulator.

Every repetition serves the *calibration* items and, spread among them, the *served* ones. Requests
and luck depend on the load alone, so every policy and repetition meets the same ones. Luck is
leadline's own: whether a draft is accepted is drawn for each request and output position
(sim/acceptance/paths.py), and the recorder hands the same draws to vLLM's synthetic acceptance.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from sim.acceptance.base import AcceptanceProcess
from sim.acceptance.build import build_process
from sim.acceptance.config import BetaAcceptance, Confidence
from sim.cost.step_cost import DraftHabits
from sim.policies.base import Policy
from sim.policies.config import Bounds
from sim.policies.goodput import GoodputConfig
from sim.policies.leadline import LeadlineConfig
from sim.policies.off import Off
from sim.policies.per_batch_size import PerBatchSizeConfig, Row
from sim.policies.static import Static
from sim.streams import uniforms
from sim.workload.requests import Requests

SEED: Final = 20261130
DEPTH: Final = 5
"""``num_speculative_tokens`` of every engine with a drafter."""
ACCEPTANCE: Final = BetaAcceptance(
    process="beta", mean=0.7, concentration=4, per="request", confidence=Confidence(auc=0.85)
)
HABITS: Final = DraftHabits(over_scheduled=True, idle_pass=True, uniform=True)
"""vLLM 0.32 around a draft model (docs/referee.md)."""
TABLE: Final[tuple[Row, ...]] = ((1, 2, 4), (3, 8, 2), (9, 64, 0))

STATIC: Final = {f"k{depth}": depth for depth in range(1, DEPTH + 1)}
CALIBRATED: Final = ("off", "k1", "k3", "k5")
CALIBRATION_CLIENTS: Final = (1, 4, 12, 28)
SERVED: Final = ("off", "k1", "k2", "k3", "k4", "table", "goodput", "leadline")


@dataclass(frozen=True)
class Load:
    """An open loop at ``rate`` requests per second, or a closed loop of ``clients``."""

    name: str
    requests: int
    rate: float = 0.0
    clients: int = 0


OPEN: Final = (Load("low", 24, rate=2.0), Load("middle", 40, rate=5.0), Load("high", 64, rate=7.5))
"""About 25, 60 and 90 % of what the engine without a drafter can take."""
CLOSED: Final = Load("8 clients", 32, clients=8)
LOADS: Final = (*OPEN, CLOSED)


@dataclass(frozen=True)
class Item:
    """One run: a policy under a load, for the fit or to be predicted."""

    kind: str
    policy: str
    load: Load

    @property
    def name(self) -> str:
        """Unique within a repetition."""
        return f"{self.kind}/{self.policy}/{self.load.name}"


def calibration() -> list[Item]:
    """Closed loops of one and a half turns, so that prompts meet decodes."""
    return [
        Item("fit", policy, Load(f"{clients} clients", clients + clients // 2 + 1, clients=clients))
        for clients in CALIBRATION_CLIENTS
        for policy in CALIBRATED
    ]


def served(repetition: int) -> list[Item]:
    """Policies side by side at each load; who comes first moves on with the repetition."""
    turn = 3 * repetition % len(SERVED)
    order = (*SERVED[turn:], *SERVED[:turn])
    return [Item("serve", policy, load) for load in LOADS for policy in order]


def items(repetition: int) -> list[Item]:
    """One repetition, calibration spread evenly among what is served."""
    runs, fits = served(repetition), calibration()
    found = []
    for i, item in enumerate(runs):
        found += fits[i * len(fits) // len(runs) : (i + 1) * len(fits) // len(runs)]
        found.append(item)
    return found


def requests_of(load: Load) -> Requests:
    """Prompts of 8 to 24 and answers of 16 to 48 tokens; Poisson arrivals, or all at once."""
    gaps, prompts, outputs = (
        uniforms(SEED, f"{load.name}/{side}", 0, load.requests) for side in ("gap", "prompt", "output")
    )
    arrival = np.cumsum(-np.log(gaps)) / load.rate if load.rate else np.zeros(load.requests)
    return Requests(
        arrival_ns=np.rint(arrival * 1e9).astype(np.int64),
        prompt_tokens=(8 + 17 * prompts).astype(np.int64),
        output_tokens=(16 + 33 * outputs).astype(np.int64),
        class_id=np.zeros(load.requests, dtype=np.int64),
        max_concurrency=load.clients or None,
    )


def luck_of(load: Load, seed: int = SEED) -> AcceptanceProcess:
    """Acceptance of a load's requests. No two loads have as many, so none has another's luck."""
    return build_process(ACCEPTANCE, seed + load.requests, DEPTH, Path)


def policy_of(name: str) -> Policy:
    """A policy by its name in tables, fresh for one run."""
    bounds = Bounds(DEPTH)
    if name == "off":
        return Off()
    if name == "table":
        return PerBatchSizeConfig(policy="per_batch_size", table=TABLE).build(bounds)
    if name == "goodput":
        return GoodputConfig(policy="goodput").build(bounds)
    if name == "leadline":
        return LeadlineConfig(policy="leadline").build(bounds)
    return Static(STATIC[name])


def depth_table(name: str) -> tuple[Row, ...] | None:
    """The policy as vLLM's own depth table, unless it has to be plugged in."""
    if name in STATIC:
        return ((1, 64, STATIC[name]),)
    return TABLE if name == "table" else None
