"""The scenario: everything that one file says, validated and frozen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, PrivateAttr, Tag

from calibrate.profile import Drafter, Profile
from sim.acceptance.config import AcceptanceConfig
from sim.engine.config import EngineConfig
from sim.fleet.config import FleetConfig
from sim.policies.config import PolicyConfig
from sim.results.metrics import Slo
from sim.scenario import catalogue
from sim.scenario.policy_choice import PolicyChoice
from sim.scenario.run_control import RunControl
from sim.units import Config
from sim.workload.config import RequestClass, WorkloadConfig


def _list_or_mapping(value: object) -> str:
    return "labelled" if isinstance(value, Mapping) else "listed"


SweptValues = Annotated[
    Annotated[tuple[Any, ...], Tag("listed")] | Annotated[dict[str, Any], Tag("labelled")],
    Discriminator(_list_or_mapping),
]
"""Values of one swept path: a list, or a mapping from labels to values."""


class ScenarioClass(RequestClass):
    """A kind of request with, if they differ, its lengths, acceptance and limits."""

    acceptance: AcceptanceConfig | None = Field(default=None, description="default: the scenario's")
    slo: Slo | None = Field(default=None, description="default: the scenario's")
    structured: bool = Field(
        default=False,
        description="answers follow a grammar, which costs the host engine.grammar_overhead; its effect on "
        "acceptance is acceptance.scale",
    )


class ScenarioWorkload(WorkloadConfig):
    """Which requests a run sends, and of which classes."""

    classes: tuple[ScenarioClass, ...] = Field(
        default=(), description="kinds of requests; shares add up to 1"
    )


class Scenario(Config):
    """One scenario file: a device, its traffic, and the policies to compare on it."""

    name: str = Field(default="", description="name of the results; default: the file's name")
    description: str = Field(default="", description="one sentence for lists and reports")
    profile: str | None = Field(default=None, description="shipped profile, or a path relative to this file")
    profiles: dict[str, str] = Field(
        default_factory=dict, description="label -> profile, instead of profile, to compare hardware"
    )
    profile_mode: Literal["fit", "exact"] = Field(
        default="fit",
        description="measured profiles: the fitted curves, or those through the measured points",
    )
    drafter: str | None = Field(default=None, description="name of one of the profile's drafters")
    acceptance: AcceptanceConfig | None = Field(default=None, description="which drafts survive verification")
    workload: ScenarioWorkload = Field(description="which requests arrive, when, and how long they are")
    engine: EngineConfig = Field(default_factory=EngineConfig, description="what the serving engine does")
    fleet: FleetConfig = Field(default_factory=FleetConfig, description="replicas, and what routes to them")
    policies: tuple[PolicyChoice, ...] = Field(min_length=1, description="depth policies to compare")
    slo: Slo = Field(default_factory=Slo, description="limits that a good request meets, as in ttft: 500ms")
    sweep: dict[str, SweptValues] = Field(
        default_factory=dict,
        description="dotted path -> values, or label -> value; every combination is one cell",
    )
    run: RunControl = Field(default_factory=RunControl, description="seeds, warm-up, baseline and records")

    _folder: Path = PrivateAttr(default_factory=Path)
    _written: Mapping[str, Any] = PrivateAttr(default_factory=dict)

    @property
    def folder(self) -> Path:
        """Folder of the scenario file; relative paths count from it."""
        return self._folder

    @property
    def written(self) -> Mapping[str, Any]:
        """The file's plain data, units and all, from which the cells of a sweep are made."""
        return self._written

    @property
    def profile_path(self) -> Path:
        """File of ``profile``; raises ``InputError`` if there is none of that name."""
        return catalogue.locate("profile", self.profile or "", self._folder)

    def locate_profile(self, name: str) -> Path:
        """File of a shipped profile's name or of a path that stands in the scenario."""
        return catalogue.locate("profile", name, self._folder)

    def locate(self, name: str) -> Path:
        """File of a shipped workload's name or of a path that stands in the scenario."""
        return catalogue.locate("workload", name, self._folder)

    def locate_acceptance(self, name: str) -> Path:
        """File of a shipped acceptance trace's name or of a path that stands in the scenario."""
        return catalogue.locate("acceptance", name, self._folder)

    @property
    def labels(self) -> tuple[str, ...]:
        """The policies' names in tables, in order."""
        return tuple(policy.title for policy in self.policies)

    @property
    def baseline(self) -> str:
        """Label that the other policies are compared with."""
        if self.run.baseline is not None:
            return self.run.baseline
        off = [policy.title for policy in self.policies if policy.policy == "off"]
        return (off or [self.labels[0]])[0]

    @property
    def slos(self) -> dict[str, Slo]:
        """Limits by request class, ``default`` without classes; empty when there is no limit at all."""
        found = {kind.name: kind.slo or self.slo for kind in self.workload.classes} or {"default": self.slo}
        return found if any(slo != Slo() for slo in found.values()) else {}

    @property
    def tpot_limits_ns(self) -> tuple[int, ...]:
        """TPOT limit of every request class, 0 for none, in the order of ``workload.classes``."""
        slos = [kind.slo or self.slo for kind in self.workload.classes] or [self.slo]
        return tuple(slo.tpot or 0 for slo in slos)

    @property
    def acceptances(self) -> tuple[AcceptanceConfig | None, ...]:
        """Acceptance of every request class, in the order of ``workload.classes``."""
        return tuple(kind.acceptance or self.acceptance for kind in self.workload.classes) or (
            self.acceptance,
        )

    @property
    def profile_names(self) -> tuple[str, ...]:
        """The profiles that replicas run on: the scenario's, and those of groups of its fleet."""
        own = (group.profile for group in self.fleet.groups)
        return tuple(dict.fromkeys((self.profile or "", *filter(None, own))))

    def drafter_of(self, profile: Profile) -> Drafter | None:
        """The profile's drafter that the scenario names, if any."""
        return None if self.drafter is None else profile.drafters[self.drafter]

    def max_depth(self, drafter: Drafter | None, policy: PolicyConfig | None = None) -> int:
        """Depth the engine is set up for: as stated, or the policy's own, within the drafter's.

        Without ``policy`` the deepest of all. It is what ``num_speculative_tokens`` is in vLLM; of a
        tree it counts the nodes, which the drafter does not limit.
        """
        if drafter is None:
            return 0
        policies = self.policies if policy is None else (policy,)
        return max(self._max_depth(each, drafter.max_depth) for each in policies)

    def _max_depth(self, policy: PolicyConfig, limit: int) -> int:
        asked = policy.verified if self.run.max_depth is None else self.run.max_depth
        return asked if policy.verified > policy.depth else min(asked, limit)


def speculates(policy: PolicyConfig) -> bool:
    """Whether the policy needs a drafter."""
    return policy.policy != "off"


@dataclass(frozen=True)
class Cell:
    """One combination of swept values; ``label`` is unique in its scenario (``base`` without a sweep).

    ``settings`` pairs the swept paths with their values as written; ``scenario`` has them applied.
    """

    label: str
    settings: tuple[tuple[str, str], ...]
    scenario: Scenario
