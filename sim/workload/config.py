"""YAML vocabulary of the workload: what arrives, when, and how long it is.

``workload.arrival`` is in ``arrival_config``, ``workload.lengths`` in ``length_config``. Every
mistake is a ``ValueError`` that says what would be right; the scenario loader adds the place.
"""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import BeforeValidator, Field, PositiveInt, WithJsonSchema, model_validator

from sim.units import Config, DurationNs
from sim.workload.arrival_config import Arrival, ClosedArrival, PhasesArrival, TraceArrival
from sim.workload.arrival_config import at_rate as arrival_at_rate
from sim.workload.length_config import Lengths


def _parse_share(value: object) -> object:
    if isinstance(value, str) and value.strip().endswith("%"):
        try:
            return float(value.strip()[:-1]) / 100
        except ValueError:
            raise ValueError(f"{value!r} is not a share; write for example 70%") from None
    return value


Share = Annotated[
    float,
    BeforeValidator(_parse_share),
    Field(gt=0, le=1),
    WithJsonSchema({"type": ["string", "number"], "examples": ["70%", 0.7]}),
]


class SharedPrefix(Config):
    """Prompts that start alike: each belongs to one of ``groups``, equally likely.

    Prompts of a group have their first ``tokens`` in common (a system prompt, a document); a shorter
    prompt is nothing but the start of them. Lengths include them.
    """

    tokens: PositiveInt
    groups: PositiveInt = 1


class RequestClass(Config):
    """A kind of request: its share of the traffic and, if they differ, its lengths and prefix.

    A scenario subclasses this with what else a class may differ in (acceptance, SLO).
    """

    name: str = Field(min_length=1)
    share: Share
    lengths: Lengths | None = None
    prefix: SharedPrefix | None = None


class WorkloadConfig(Config):
    """Which requests a run sends.

    ``num_requests`` or ``duration`` ends the workload, whichever comes first when both are given;
    a trace ends by itself, and phases without either end with the last phase.
    """

    arrival: Arrival
    lengths: Lengths | None = None
    prefix: SharedPrefix | None = None
    num_requests: PositiveInt | None = None
    duration: DurationNs | None = Field(default=None, gt=0)
    classes: tuple[RequestClass, ...] = ()
    timeout: DurationNs | None = Field(
        default=None,
        gt=0,
        description="how long a client waits for its whole answer, from the intended arrival, in a closed "
        "loop from sending; then it gives up",
    )

    @model_validator(mode="after")
    def _an_end(self) -> Self:
        if isinstance(self.arrival, TraceArrival):
            return self
        if isinstance(self.arrival, ClosedArrival):
            if self.duration is not None or self.num_requests is None:
                raise ValueError("a closed loop ends by count: give num_requests, not duration")
        elif isinstance(self.arrival, PhasesArrival):
            self._check_phases_end(self.arrival)
        elif self.num_requests is None and self.duration is None:
            raise ValueError("how much? give num_requests (for example 1000) or duration (for example 10min)")
        if getattr(self.arrival, "normalise", False) and self.num_requests is None:
            raise ValueError("normalise places the last of num_requests; give num_requests")
        return self

    def _check_phases_end(self, arrival: PhasesArrival) -> None:
        if arrival.repeat and self.num_requests is None and self.duration is None:
            raise ValueError("repeated phases never end; give num_requests or duration")
        if not arrival.repeat and arrival.ends()[-1][1] == 0 and self.num_requests and not self.duration:
            raise ValueError("the last phase ends at 0/s, so num_requests may never come; add duration")

    @model_validator(mode="after")
    def _lengths_from_one_place(self) -> Self:
        if isinstance(self.arrival, TraceArrival):
            if self.lengths is not None or any(kind.lengths is not None for kind in self.classes):
                raise ValueError("a trace brings its own lengths; remove lengths")
            return self
        bare = [kind.name for kind in self.classes if kind.lengths is None]
        if self.lengths is None and (bare or not self.classes):
            whose = f" (classes {', '.join(bare)} have none)" if bare else ""
            raise ValueError(f"lengths is missing{whose}; for example lengths: {{input: 1024, output: 256}}")
        return self

    @model_validator(mode="after")
    def _prefix_from_one_place(self) -> Self:
        given = self.prefix is not None or any(kind.prefix is not None for kind in self.classes)
        if given and isinstance(self.arrival, TraceArrival):
            raise ValueError("a trace brings its own prefix groups, if any; remove prefix")
        return self

    @model_validator(mode="after")
    def _shares_make_a_whole(self) -> Self:
        names = [kind.name for kind in self.classes]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"class {twice[0]!r} is named twice; names must differ")
        total = sum(kind.share for kind in self.classes)
        if self.classes and abs(total - 1) > 1e-6:
            raise ValueError(f"the shares of the classes add up to {total:.4g}; make them add up to 1 (100%)")
        return self

    @property
    def end_ns(self) -> int | None:
        """Arrivals stop before this time, if by time at all."""
        if self.duration is None and self.num_requests is None and isinstance(self.arrival, PhasesArrival):
            return self.arrival.duration_ns
        return self.duration

    def at_rate(self, rate_per_s: float) -> Self:
        """Give the same workload at a mean rate of ``rate_per_s``; ``InputError`` for a closed loop."""
        return self.model_copy(update={"arrival": arrival_at_rate(self.arrival, rate_per_s)})

    def at_concurrency(self, max_concurrency: int) -> Self:
        """Give the same workload with at most ``max_concurrency`` requests in flight at the client."""
        arrival = self.arrival.model_copy(update={"max_concurrency": max_concurrency})
        return self.model_copy(update={"arrival": arrival})
