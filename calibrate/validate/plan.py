"""What is served: a scenario at a few loads under its policies, sized to the machine that was calibrated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from calibrate.profile import Profile, save_profile
from calibrate.validate.grid import Reach
from calibrate.validate.pace import faster, filled, is_open
from sim.engine.simulate import simulate
from sim.policies.config import Bounds
from sim.policies.off import OffConfig
from sim.results.metrics import measure
from sim.scenario.load import check_document
from sim.scenario.model import Cell, Scenario
from sim.scenario.nodes import Document
from sim.sweep.prepare import prepare

LOW, MIDDLE = 0.25, 0.6
"""Shares of the request rate that plain decoding reaches with a full batch."""


@dataclass(frozen=True)
class Size:
    """How much is served: requests at low, middle and full load, and how often.

    ``own`` requests are served beside, in each run, to measure passes and loop in the engine.
    A user's scenario sends at most ``full`` requests at each load. ``calibration_s`` bounds the
    campaign; when ``quick``, every cell is measured once and none again.
    """

    low: int
    middle: int
    full: int
    own: int
    runs: int
    calibration_s: float
    quick: bool


QUICK: Final = Size(low=5, middle=10, full=24, own=12, runs=2, calibration_s=60, quick=True)
FULL: Final = Size(low=16, middle=40, full=72, own=20, runs=3, calibration_s=240, quick=False)

POLICIES: Final[tuple[Any, ...]] = (
    "off",
    {"policy": "static", "k": 2},
    {"policy": "static", "k": 4},
    {"policy": "goodput", "k_max": 4},
    {"policy": "leadline", "k_max": 4},
)
ENGINE: Final = {
    "preset": "vllm_v1",
    "max_num_seqs": 16,
    "max_num_batched_tokens": 128,
    "max_model_len": 1024,
    "kv_blocks": 4096,
    "capture_sizes": [],
    "dummy_drafts": False,
    "pad_new_decodes": False,
    "pad_queries": True,
    "sampling": "greedy",
}
LENGTHS: Final = {
    "input": {"type": "uniform", "min": 24, "max": 96},
    "output": {"type": "uniform", "min": 12, "max": 48},
}
REACH: Final = Reach(sequences=16, depth=4, tokens=128, longest=144)
ACCEPTANCE: Final = {"process": "beta", "mean": 0.7, "concentration": 8, "confidence": {"auc": 0.85}}


@dataclass(frozen=True)
class Load:
    """A scenario as the engine serves it, but for its profile, its drafter and its pace.

    Its rates are for a machine that takes ``capacity_per_s`` requests per second; on another they keep
    their share of what that one takes. ``reach`` bounds the steps that it makes.
    """

    label: str
    scenario: Scenario
    reach: Reach
    capacity_per_s: float = 1.0


def built_in(size: Size) -> tuple[Load, ...]:
    """Poisson arrivals at two shares of the capacity, and as many in flight as the batch holds."""
    full = {"process": "closed", "max_concurrency": ENGINE["max_num_seqs"]}
    loads = {
        "low": (_poisson(LOW), size.low),
        "middle": (_poisson(MIDDLE), size.middle),
        "full": (full, size.full),
    }
    return tuple(Load(label, _built_in(*load), REACH) for label, load in loads.items())


def _poisson(share: float) -> dict[str, Any]:
    return {"process": "poisson", "request_rate": f"{share}/s"}


def _built_in(arrival: dict[str, Any], requests: int) -> Scenario:
    """The scenario on a shipped profile, which the calibrated one replaces."""
    data = {
        "profile": "cpu-small-88m",
        "drafter": "draft",
        "acceptance": ACCEPTANCE,
        "engine": ENGINE,
        "workload": {"arrival": arrival, "lengths": LENGTHS, "num_requests": requests},
        "policies": list(POLICIES),
    }
    return check_document(Document("reference", data), Path(), "reference").scenario


@dataclass(frozen=True)
class Plan:
    """Loads around a calibrated profile's file and one of its drafters."""

    profile: Path
    drafter: str
    loads: tuple[Load, ...]

    @property
    def largest(self) -> Load:
        """The load with the largest batch."""
        return max(self.loads, key=lambda load: load.scenario.engine.max_num_seqs)

    def cells_here(self, seed: int) -> tuple[Cell, ...]:
        """Every load at this machine's pace; how many requests each sends, it says itself."""
        return self.cells({load.label: self._paced(load, seed) for load in self.loads})

    def cells(self, loads: Mapping[str, Load]) -> tuple[Cell, ...]:
        """One cell per load, on the calibrated profile."""
        return tuple(Cell(k, (("load", k),), self._here(load.scenario)) for k, load in loads.items())

    def own_loads(self, requests: int) -> tuple[Cell, ...]:
        """The largest load as closed loops: a full batch, half of one, and two sequences."""
        most = self.largest.scenario.engine.max_num_seqs
        requests = max(requests, min(most, 64))
        sizes = {"full": (most, requests), "half": (-(-most // 2), -(-requests // 2)), "few": (2, 4)}
        return self.cells({label: self._filled(*size) for label, size in sizes.items()})

    def _filled(self, in_flight: int, requests: int) -> Load:
        """The largest load with so many in flight at any time."""
        scenario = self.largest.scenario
        workload = filled(scenario.workload, in_flight, requests)
        return replace(self.largest, scenario=scenario.model_copy(update={"workload": workload}))

    def _here(self, scenario: Scenario) -> Scenario:
        about = {"profile": str(self.profile.absolute()), "drafter": self.drafter}
        return scenario.model_copy(update=about)

    def _paced(self, load: Load, seed: int) -> Load:
        """The load with the share of this machine's capacity that it has of its own's."""
        workload = load.scenario.workload
        if not is_open(workload):
            return load
        factor = capacity_per_s(self._here(load.scenario), seed) / load.capacity_per_s
        return replace(load, scenario=load.scenario.model_copy(update={"workload": faster(workload, factor)}))


def capacity_per_s(scenario: Scenario, seed: int) -> float:
    """Requests per second of plain decoding with a full batch, simulated on the scenario's profile."""
    off = OffConfig()
    full = _full(scenario, max(200, 4 * scenario.engine.max_num_seqs))
    return measure(simulate(prepare(full, off, seed), off.build(Bounds(0))))["requests_per_s"]


def _full(scenario: Scenario, requests: int) -> Scenario:
    workload = filled(scenario.workload, scenario.engine.max_num_seqs, requests)
    return scenario.model_copy(update={"workload": workload})


def write_profile(profile: Profile, folder: Path, name: str) -> Path:
    """The profile as a file that a scenario can name."""
    path = folder / f"{name}.json"
    save_profile(profile.sealed(), path)
    return path
