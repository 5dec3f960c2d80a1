"""``fleet:`` of a scenario: how many replicas serve the requests, and what sends each to one of them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from sim.units import Config

RouterName = Literal["round_robin", "least_requests", "power_of_two"]


class FleetConfig(Config):
    """Equal replicas behind a router; one replica needs none."""

    replicas: int = Field(default=1, ge=1, le=1024, description="how many replicas serve the requests")
    router: RouterName = Field(
        default="least_requests", description="what chooses the replica of each request"
    )
