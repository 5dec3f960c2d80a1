"""Live fleets for tests: any rules over replicas of small systems."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sim.engine.simulate import Setup
from sim.fleet.config import FleetConfig
from sim.fleet.live import Post, simulate_live
from sim.policies.base import Policy
from sim.results.run_records import RunRecords


def live(setup: Setup, build: Callable[[], Policy], replicas: int, **rules: Any) -> RunRecords:
    """Equal replicas under some rules."""
    config = FleetConfig.model_validate({"replicas": replicas, **rules})
    most = config.sizes[0]
    return simulate_live([Post(setup, build, 0, i < replicas) for i in range(most)], config)


def grouped(
    setups: Sequence[Setup],
    builds: Sequence[Callable[[], Policy]],
    groups: list[dict[str, Any]],
    **rules: Any,
) -> RunRecords:
    """Groups of replicas, each with a setup and a policy."""
    config = FleetConfig.model_validate({"replicas": groups, **rules})
    posts = [
        Post(setups[number], builds[number], number, i < config.groups[number].count)
        for number, size in enumerate(config.sizes)
        for i in range(size)
    ]
    return simulate_live(posts, config)
