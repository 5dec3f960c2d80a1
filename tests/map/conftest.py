"""A small map that several tests read: a closed loop on one GPU, from no acceptance to a high one."""

from __future__ import annotations

import pytest

from sim.map.axes import wanted_axes
from sim.map.make import build
from sim.map.model import Map
from sim.scenario.load import find_scenario, load_scenario
from sim.scenario.model import Scenario

REFINE = 4


@pytest.fixture(scope="session")
def small_scenario() -> Scenario:
    changes = {
        "sweep": {},
        "workload.arrival": {"process": "closed", "max_concurrency": 4},
        "workload.lengths": {"input": 32, "output": 16},
        "policies": ["off", {"policy": "static", "k": 3}, "goodput"],
        "run.seeds": 3,
        "run.max_depth": 3,
        "engine.preset": "ideal",
    }
    return load_scenario(find_scenario("azure-conversation"), changes)


def small_map(scenario: Scenario, refine: int = REFINE, jobs: int = 1) -> Map:
    ends = {"load": ("1", "16"), "acceptance": ("0", "0.9")}
    wanted = wanted_axes(["load", "acceptance"], ends, {"load": 3, "acceptance": 2})
    return build(scenario, wanted, refine, jobs, steps=150)


@pytest.fixture(scope="session")
def small(small_scenario: Scenario) -> Map:
    return small_map(small_scenario)
