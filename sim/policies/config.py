"""What every policy's configuration has in common: its name, a label, and a way to build it."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import Field

from sim.policies.base import Policy
from sim.units import Config


@dataclass(frozen=True)
class Bounds:
    """What the engine fixes before the run: the depth that lookahead and drafter allow."""

    max_depth: int


class PolicyConfig(Config):
    """Base of a policy's YAML form; ``policy`` names it, the other keys are its parameters."""

    policy: str
    label: str | None = Field(default=None, description="name in tables; default: from the parameters")

    def build(self, bounds: Bounds) -> Policy:
        """A fresh policy for one run."""
        raise TypeError(f"{type(self).__name__} does not say how to build its policy")

    @property
    def depth(self) -> int:
        """Largest depth this configuration can ask for (0 when the engine's bound decides)."""
        return 0

    @property
    def verified(self) -> int:
        """Most draft tokens it has verified per sequence: its depth, or more in a tree."""
        return self.depth

    @property
    def title(self) -> str:
        """Name in tables: the label, or the policy with its parameters."""
        if self.label:
            return self.label
        given = self.model_dump(exclude={"policy", "label"}, exclude_defaults=True)
        inside = ", ".join(f"{key}={value}" for key, value in given.items())
        return f"{self.policy}({inside})" if inside else self.policy
