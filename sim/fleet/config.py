"""``fleet:`` of a scenario: which replicas serve the requests, what routes to them, and what befalls them."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, get_args

from pydantic import Discriminator, Field, Tag, field_serializer

from sim.acceptance.config import AcceptanceConfig
from sim.engine.config import EngineConfig
from sim.scenario.policy_choice import PolicyChoice
from sim.units import BytesPerS, Config, DurationNs

RouterName = Literal["round_robin", "least_requests", "power_of_two"]
"""Routers that know what they sent and what came back, and nothing else."""
AnyRouter = Literal[RouterName, "least_kv", "prefix_aware"]
Role = Literal["both", "prefill", "decode"]
Retry = Literal["restart", "resume", "unstarted", "none"]
MOST: Final = 1024


class Scale(Config):
    """A rule that starts and stops replicas.

    Every ``period`` it wants ceil(total / target) replicas, where ``total`` is the metric summed over
    those that take requests, and changes nothing within 10 % of the target: the rule of Kubernetes'
    horizontal pod autoscaler (kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale, 1.34).
    """

    min: int = Field(default=1, ge=1, le=MOST, description="never fewer replicas than this")
    max: int = Field(ge=1, le=MOST, description="never more replicas than this")
    metric: Literal["in_flight", "waiting", "busy", "kv"] = Field(
        default="in_flight",
        description="of a replica: requests sent to it and not answered, requests in its queue, share of the "
        "last period in which it ran steps, share of its KV blocks held",
    )
    target: float = Field(gt=0, description="the metric of one replica that is wanted")
    period: DurationNs = Field(default=15_000_000_000, gt=0, description="time between decisions")
    startup: DurationNs = Field(default=0, description="from the decision to a replica that takes requests")
    cooldown: DurationNs = Field(
        default=300_000_000_000, description="no replica is stopped within this time of the last change"
    )


class Group(Config):
    """Equal replicas of a fleet of unequal ones."""

    name: str = Field(default="", description="in records and reports; default: its role and number")
    count: int = Field(default=1, ge=1, le=MOST, description="how many replicas, at the start if it scales")
    role: Role = Field(
        default="both", description="computes prompts and sends their KV away, only decodes, or does both"
    )
    profile: str | None = Field(default=None, description="default: the scenario's")
    drafter: str | None = Field(default=None, description="default: the scenario's")
    policy: PolicyChoice | None = Field(
        default=None, description="what these replicas run whatever policy is compared; default: that policy"
    )
    acceptance: AcceptanceConfig | None = Field(
        default=None, description="of drafts made here, for all classes; default: the scenario's"
    )
    engine: EngineConfig | None = Field(
        default=None, description="what differs from the scenario's engine; the rest is the same"
    )
    scale: Scale | None = Field(default=None, description="how many of them run, and when that changes")

    @field_serializer("engine")
    def _only_what_differs(self, engine: EngineConfig | None) -> dict[str, Any] | None:
        """The keys that are set: a default that is written overrides the scenario."""
        return None if engine is None else engine.model_dump(mode="json", exclude_unset=True)


class FleetEvent(Config):
    """Something that befalls one replica at a given time."""

    at: DurationNs = Field(description="when, from the start of the run")
    fail: int | None = Field(default=None, ge=0, description="number of the replica that fails")
    slow: int | None = Field(default=None, ge=0, description="number of the replica that slows down")
    factor: float = Field(default=2.0, gt=0, description="how much longer a slow replica's steps take")
    lasts: DurationNs | None = Field(default=None, alias="for", description="how long; default: for ever")

    @property
    def replica(self) -> int:
        """Number of the replica that is meant."""
        return self.fail if self.fail is not None else self.slow or 0


class PrefixRule(Config):
    """When ``prefix_aware`` follows the cache and when the load (SGLang's router, ``cache_aware``)."""

    sees: Literal["sent", "cached"] = Field(
        default="sent",
        description="what a replica's cache holds, as the router takes it: every prefix it sent there, or "
        "what the engine really holds",
    )
    cache_threshold: float = Field(
        default=0.3, ge=0, le=1, description="share of the prompt that must be cached for it to decide"
    )
    balance_abs_threshold: int = Field(
        default=64,
        ge=0,
        description="with a larger gap in requests between the busiest and the idlest",
    )
    balance_rel_threshold: float = Field(
        default=1.5, ge=1, description="and this many times as many, the least busy is taken"
    )


def _number_or_list(value: object) -> str:
    return "groups" if isinstance(value, list | tuple) else "count"


Replicas = Annotated[
    Annotated[int, Tag("count"), Field(ge=1, le=MOST)]
    | Annotated[tuple[Group, ...], Tag("groups"), Field(min_length=1, max_length=MOST)],
    Discriminator(_number_or_list),
]
"""How many equal replicas, or groups of unequal ones."""


class FleetConfig(Config):
    """Replicas behind a router; one replica needs none."""

    replicas: Replicas = Field(default=1, description="how many equal replicas, or groups of unequal ones")
    router: AnyRouter = Field(
        default="least_requests", description="what chooses the replica of each request"
    )
    report_period: DurationNs = Field(
        default=0, description="least_kv sees memory as it was at the last multiple of this; 0: as it is"
    )
    prefix: PrefixRule = Field(default_factory=PrefixRule, description="how prefix_aware chooses")
    kv_bandwidth: BytesPerS | None = Field(
        default=None, description="of the link that a prefill replica sends KV over; default: no limit"
    )
    kv_latency: DurationNs = Field(default=0, description="from the end of sending to the end of receiving")
    missing_draft_kv: Literal["rebuild", "lose"] = Field(
        default="rebuild",
        description="a decode replica that drafts after a prefill replica that does not: it runs its drafter "
        "over the prompt, or its drafts are accepted less often",
    )
    acceptance_loss: float = Field(
        default=0.0, ge=0, le=1, description="with missing_draft_kv: lose, the share of accepted drafts lost"
    )
    scale: Scale | None = Field(default=None, description="how many replicas run, and when that changes")
    events: tuple[FleetEvent, ...] = Field(default=(), description="replicas that fail or slow down")
    retry: Retry = Field(
        default="restart",
        description="requests of a failed replica: computed again from the start elsewhere, continued "
        "elsewhere, computed elsewhere only if nothing was streamed, or failed",
    )
    lockstep: bool = Field(
        default=False, description="replicas step together, as data-parallel ranks of one engine do"
    )

    @property
    def groups(self) -> tuple[Group, ...]:
        """The groups; a number of equal replicas is one."""
        if isinstance(self.replicas, int):
            return (Group(name="all", count=self.replicas, scale=self.scale),)
        return self.replicas

    @property
    def count(self) -> int:
        """Replicas that run at the start."""
        return sum(group.count for group in self.groups)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Replicas of every group, those not started yet too."""
        return tuple(max(group.count, group.scale.max if group.scale else 0) for group in self.groups)

    @property
    def serving(self) -> int:
        """Replicas that share the answers at the start: those that decode."""
        return sum(group.count for group in self.groups if group.role != "prefill")

    @property
    def equal(self) -> bool:
        """Whether it is a number of equal replicas that nothing befalls."""
        moved = self.scale is not None or self.events or self.lockstep
        return isinstance(self.replicas, int) and not moved

    @property
    def plain(self) -> bool:
        """Whether it is that, behind a router that counts."""
        return self.equal and self.router in get_args(RouterName)

    def title(self, number: int) -> str:
        """Name of one group."""
        group = self.groups[number]
        return group.name or f"{group.role} {number}"
