"""YAML vocabulary of arrivals: ``workload.arrival``, told apart by ``process``."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, PositiveFloat, PositiveInt, WithJsonSchema, model_validator

from sim.errors import InputError
from sim.units import Config, DurationNs, RatePerS, parse_rate_per_s

RateOrZeroPerS = Annotated[
    float,
    BeforeValidator(parse_rate_per_s),
    Field(ge=0),
    WithJsonSchema({"type": "string", "examples": ["0/s", "12/s"]}),
]
TraceFormat = Literal["azure", "mooncake", "guidellm", "burstgpt", "vllm_bench", "leadline"]


class _Arrival(Config):
    """What every process shares: a bound on the requests in flight at the client, if any."""

    max_concurrency: PositiveInt | None = None


class PoissonArrival(_Arrival):
    """Independent exponential gaps.

    ``normalise`` rescales the gaps so that the last request arrives at num_requests/request_rate,
    as ``vllm bench serve`` does: less noise in the rate, but earlier arrivals then depend on
    ``num_requests``.
    """

    process: Literal["poisson"]
    request_rate: RatePerS
    normalise: bool = False

    @property
    def shape(self) -> float:
        """Gamma shape of the gaps."""
        return 1.0


class _Bursty(_Arrival):
    """Gamma gaps: ``burstiness`` is the shape (vLLM's flag), ``cv`` the coefficient of variation."""

    burstiness: PositiveFloat | None = None
    cv: PositiveFloat | None = None

    @model_validator(mode="after")
    def _one_burstiness(self) -> Self:
        if self.burstiness is not None and self.cv is not None:
            raise ValueError("burstiness and cv say the same thing (burstiness = 1/cv^2); give one of them")
        return self

    @property
    def shape(self) -> float:
        """Gamma shape of the gaps: 1 is Poisson, below 1 is burstier."""
        if self.cv is not None:
            return self.cv**-2
        return 1.0 if self.burstiness is None else self.burstiness


class GammaArrival(_Bursty):
    """Independent gamma gaps of mean 1/request_rate; ``normalise`` as for Poisson."""

    process: Literal["gamma"]
    request_rate: RatePerS
    normalise: bool = False

    @model_validator(mode="after")
    def _some_burstiness(self) -> Self:
        if self.burstiness is None and self.cv is None:
            raise ValueError("gamma needs burstiness or cv (burstiness 1 is Poisson)")
        return self


class ConstantArrival(_Arrival):
    """One request every 1/request_rate, the first at 0."""

    process: Literal["constant"]
    request_rate: RatePerS


class ClosedArrival(Config):
    """A closed loop: ``max_concurrency`` clients, each sending when its last answer is complete."""

    process: Literal["closed"]
    max_concurrency: PositiveInt


class Phase(Config):
    """``request_rate`` for ``duration``; with ``ramp_to`` the rate moves there during the phase.

    Without ``request_rate`` the ramp starts where the phase before ended.
    """

    duration: DurationNs = Field(gt=0)
    request_rate: RateOrZeroPerS | None = None
    ramp_to: RateOrZeroPerS | None = None
    ramp: Literal["linear", "exponential"] = "linear"

    @model_validator(mode="after")
    def _some_rate(self) -> Self:
        if self.request_rate is None and self.ramp_to is None:
            raise ValueError("a phase needs request_rate or ramp_to")
        return self


class _Shaped(_Bursty):
    """A rate that changes with time, times ``rate_scale``, or scaled to a mean of ``request_rate``."""

    rate_scale: PositiveFloat | None = None
    request_rate: RatePerS | None = None

    @model_validator(mode="after")
    def _one_scale(self) -> Self:
        if self.rate_scale is not None and self.request_rate is not None:
            raise ValueError("rate_scale and request_rate both set the mean rate; give one of them")
        return self

    def scale(self, mean_per_s: float) -> float:
        """Factor on a curve whose own mean is ``mean_per_s``."""
        if self.request_rate is not None:
            return self.request_rate / mean_per_s
        return 1.0 if self.rate_scale is None else self.rate_scale


class PhasesArrival(_Shaped):
    """Phases one after the other, then again (``repeat``) or on at the last rate."""

    process: Literal["phases"]
    phases: tuple[Phase, ...] = Field(min_length=1)
    repeat: bool = False

    @model_validator(mode="after")
    def _phases_make_a_rate(self) -> Self:
        if self.phases[0].request_rate is None:
            raise ValueError("the first phase needs request_rate: there is no phase before it to ramp from")
        for number, (phase, (start, end)) in enumerate(zip(self.phases, self.ends(), strict=True), 1):
            if phase.ramp == "exponential" and min(start, end) == 0:
                raise ValueError(f"phase {number}: an exponential ramp cannot touch 0/s; use ramp: linear")
        if max(max(ends) for ends in self.ends()) == 0:
            raise ValueError("no phase has a rate above 0/s")
        return self

    def ends(self) -> list[tuple[float, float]]:
        """Rate at the start and end of every phase, per second."""
        pairs: list[tuple[float, float]] = []
        for phase in self.phases:
            start = pairs[-1][1] if phase.request_rate is None else phase.request_rate
            pairs.append((start, start if phase.ramp_to is None else phase.ramp_to))
        return pairs

    @property
    def duration_ns(self) -> int:
        """Length of one pass over the phases."""
        return sum(phase.duration for phase in self.phases)


class ProfileArrival(_Shaped):
    """A rate per time bin from a workload file, over and over.

    ``time_scale`` stretches the bins and leaves the rates; ``rate_scale`` the other way round.
    """

    process: Literal["profile"]
    source: str = Field(alias="from", min_length=1)
    time_scale: PositiveFloat = 1.0


class TraceArrival(_Arrival):
    """Recorded requests, arrivals and lengths.

    Times are jittered (uniform in [0, jitter), for clocks that tick coarsely), then multiplied by
    ``time_scale`` (0.5 doubles the rate) or by whatever gives a mean rate of ``request_rate``.
    ``limit`` stops reading after so many requests. ``drop_failed`` leaves out rows without input
    or output tokens; otherwise they count as one token. ``hash_block`` is the tokens of a hashed block
    where rows have ``hash_ids``; without it 512, or the power of two that fits the prompts.
    """

    process: Literal["trace"]
    format: TraceFormat
    path: str = Field(min_length=1)
    time_scale: PositiveFloat | None = None
    request_rate: RatePerS | None = None
    jitter: DurationNs = 0
    limit: PositiveInt | None = None
    drop_failed: bool = True
    hash_block: PositiveInt | None = None

    @model_validator(mode="after")
    def _one_scale(self) -> Self:
        if self.time_scale is not None and self.request_rate is not None:
            raise ValueError("time_scale and request_rate both set the rate; give one of them")
        return self


OpenArrival = PoissonArrival | GammaArrival | ConstantArrival | PhasesArrival | ProfileArrival | TraceArrival
Arrival = Annotated[
    PoissonArrival
    | GammaArrival
    | ConstantArrival
    | ClosedArrival
    | PhasesArrival
    | ProfileArrival
    | TraceArrival,
    Field(discriminator="process"),
]


def at_rate(arrival: OpenArrival | ClosedArrival, rate_per_s: float) -> OpenArrival:
    """Give the same arrivals at a mean of ``rate_per_s``; ``InputError`` for a closed loop."""
    if isinstance(arrival, ClosedArrival):
        raise InputError("a closed loop has no request_rate to set; vary max_concurrency instead")
    update: dict[str, float | None] = {"request_rate": rate_per_s}
    if isinstance(arrival, _Shaped):
        update["rate_scale"] = None
    if isinstance(arrival, TraceArrival):
        update["time_scale"] = None
    return arrival.model_copy(update=update)
