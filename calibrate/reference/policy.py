"""What the engine needs of a depth policy, so that the simulator's own can be plugged in unchanged.

``calibrate`` does not know the simulator: whoever puts the two together (``calibrate.validate``)
gives the factories of what a policy is shown.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol


class Policy(Protocol):
    """The part of ``sim.policies.base.Policy`` that the engine asks (depths: one, or one a sequence)."""

    clairvoyant: bool
    wants_confidence: bool
    wants_outcomes: bool
    wants_progress: bool
    drafts: bool

    def draft_depths(self, batch: Any) -> Any:
        """Drafts to propose."""
        ...

    def stop_depths(self, batch: Any, depths: Any, confidence: Any) -> Any:
        """Drafts really proposed, as far as the confidences tell."""
        ...

    def verify_depths(self, batch: Any, depths: Any, confidence: Any) -> Any:
        """Drafts to verify."""
        ...

    def observe(self, outcome: Any) -> None:
        """Learn from a step."""
        ...


@dataclass(frozen=True)
class Steering:
    """A policy with what it is shown: ``batch`` and ``outcome`` take the fields of its contract.

    The cost tables that a policy may look up are already in ``batch``.
    """

    policy: Policy
    batch: Callable[..., Any]
    outcome: Callable[..., Any]
