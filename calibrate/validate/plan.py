"""What is served: a scenario at three loads under five policies, sized to the machine that was calibrated."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from calibrate.profile import Profile, save_profile
from calibrate.validate.grid import Reach
from sim.engine.simulate import simulate
from sim.policies.config import Bounds
from sim.results.metrics import measure
from sim.run import prepare
from sim.scenario.load import check_document
from sim.scenario.model import Cell
from sim.scenario.nodes import Document

LOW, MIDDLE = 0.25, 0.6
"""Shares of the request rate that plain decoding reaches with a full batch."""


@dataclass(frozen=True)
class Size:
    """How much is served: requests at low, middle and full load, and how often.

    ``calibration_s`` bounds the campaign; when ``quick``, every cell is measured once and none again.
    """

    low: int
    middle: int
    full: int
    runs: int
    calibration_s: float
    quick: bool


QUICK: Final = Size(low=5, middle=10, full=24, runs=2, calibration_s=60, quick=True)
FULL: Final = Size(low=20, middle=48, full=96, runs=3, calibration_s=300, quick=False)

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
}
LENGTHS: Final = {
    "input": {"type": "uniform", "min": 24, "max": 96},
    "output": {"type": "uniform", "min": 12, "max": 48},
}
REACH: Final = Reach(sequences=16, depth=4, tokens=128, longest=144)
ACCEPTANCE: Final = {"process": "beta", "mean": 0.7, "concentration": 8, "confidence": {"auc": 0.85}}


@dataclass(frozen=True)
class Plan:
    """The scenario's plain data around a profile file."""

    profile: Path
    drafter: str
    sampling: str
    engine: dict[str, Any]
    lengths: dict[str, Any]

    def cells(self, loads: dict[str, Any]) -> tuple[Cell, ...]:
        """One cell per load; ``loads`` maps a label to an arrival process and a number of requests."""
        first = next(iter(loads.values()))
        data = {
            "name": "reference",
            "profile": str(self.profile),
            "drafter": self.drafter,
            "acceptance": ACCEPTANCE,
            "engine": {**self.engine, "sampling": self.sampling},
            "workload": first | {"lengths": self.lengths},
            "policies": list(POLICIES),
            "sweep": {"workload": {k: v | {"lengths": self.lengths} for k, v in loads.items()}},
        }
        return check_document(Document("reference", data), self.profile.parent, "reference").cells

    def three_loads(self, size: Size, seed: int) -> tuple[Cell, ...]:
        """Poisson arrivals at two shares of the capacity, and as many in flight as the batch holds."""
        full = self.full(size.full)
        capacity = self._capacity(full, seed)
        return self.cells(
            {
                "low": _poisson(LOW * capacity, size.low),
                "middle": _poisson(MIDDLE * capacity, size.middle),
                "full": full,
            }
        )

    def full(self, requests: int) -> dict[str, Any]:
        """The closed loop that keeps the batch full."""
        arrival = {"process": "closed", "max_concurrency": self.engine["max_num_seqs"]}
        return {"arrival": arrival, "num_requests": requests}

    def _capacity(self, full: dict[str, Any], seed: int) -> float:
        """Requests per second of plain decoding at full load, simulated."""
        (cell,) = self.cells({"full": full | {"num_requests": 200}})
        setup = prepare(cell.scenario, cell.scenario.policies[0], seed)
        records = simulate(setup, cell.scenario.policies[0].build(Bounds(0)))
        return measure(records)["requests_per_s"]


def _poisson(rate: float, requests: int) -> dict[str, Any]:
    return {"arrival": {"process": "poisson", "request_rate": f"{rate:.4g}/s"}, "num_requests": requests}


def write_profile(profile: Profile, folder: Path, name: str) -> Path:
    """The profile as a file that a scenario can name."""
    path = folder / f"{name}.json"
    save_profile(profile.sealed(), path)
    return path
