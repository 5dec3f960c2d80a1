"""What may stand under ``acceptance:`` in a scenario: one model per ``process``.

Rates here are *conditional* unless a name says otherwise: the probability that a draft is accepted
given that the drafts before it in its round are. ``accepted / drafted`` of an engine's log is no
such rate (a rejection ends the round, so later drafts count as drafted and never get a chance);
only ``mean_length`` takes it, and only beside the depth it was measured at.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from sim.units import Config

Probability = Annotated[float, Field(ge=0, le=1)]
OpenProbability = Annotated[float, Field(gt=0, lt=1)]


class Decay(Config):
    """Conditional acceptance halves every ``half_life_tokens`` of context beyond ``from_tokens``.

    The context of a draft is the prompt plus its own output position.
    """

    from_tokens: int = Field(ge=0)
    half_life_tokens: float = Field(gt=0)


class Confidence(Config):
    """How good the drafter's claims are.

    ``auc`` is the chance that an accepted draft claims more than a rejected one at the same depth,
    among drafts whose predecessors were accepted (published heads and margin estimators: 0.82 to
    0.91, DSpark Fig. 6 and vLLM PR 47808). ``temperature`` divides the claims' log odds: 1 is
    calibrated, above 1 too timid, below 1 too bold. ``ece`` states the calibration error instead, the
    mean of |claim - acceptance| at every depth, and ``direction`` which way it errs (DSpark Fig. 6:
    0.03 to 0.08 raw, at most 0.02 after temperature scaling).
    """

    auc: float = Field(0.85, ge=0.5, lt=1)
    temperature: float | None = Field(None, gt=0, description="divides the claims' log odds; default: 1")
    ece: float | None = Field(None, ge=0, lt=0.5, description="calibration error; default: by temperature")
    direction: Literal["bold", "timid"] | None = Field(None, description="of ece; default: bold")

    @model_validator(mode="after")
    def _one_calibration(self) -> Self:
        if self.ece is not None and self.temperature is not None:
            raise ValueError("give either temperature or ece: each says how calibrated the claims are")
        if self.direction is not None and self.ece is None:
            raise ValueError("direction says which way ece errs; add ece, for example ece: 0.06")
        return self


class _Acceptance(Config):
    """What every process takes besides its own parameters."""

    decay: Decay | None = None
    confidence: Confidence | None = None
    match: Probability | None = Field(
        default=None, description="share of positions at which a look-up drafter proposes; default: all"
    )
    sibling: Probability | None = Field(
        default=None,
        description="for trees: chance of the next ranked candidate where none before it is accepted",
    )
    scale: float = Field(
        default=1.0,
        ge=0,
        le=1,
        description="factor on every conditional acceptance (temperature, grammar, quantised drafter)",
    )
    takes_acceptance_rate: ClassVar[bool] = False

    @model_validator(mode="before")
    @classmethod
    def _refuse_accepted_over_drafted(cls, data: object) -> object:
        if isinstance(data, dict) and "acceptance_rate" in data and not cls.takes_acceptance_rate:
            raise ValueError(
                "acceptance_rate (accepted / drafted) is not a per-token rate; use "
                "'process: mean_length' with acceptance_rate and the depth it was measured at"
            )
        return data

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What this description takes for granted, one sentence each, for the report."""
        return ()


class _Decaying(_Acceptance):
    """What processes take that know of no draft position by themselves."""

    depth_decay: float = Field(
        default=1.0,
        gt=0,
        le=1,
        description="factor on conditional acceptance per draft position; below 1 for block drafters",
    )

    def decays(self, depth: int) -> NDArray[np.float64]:
        """Factor on the conditional acceptance of the first ``depth`` drafts, shape (depth,)."""
        return np.asarray(self.scale * self.depth_decay ** np.arange(depth, dtype=np.float64))


class IidAcceptance(_Decaying):
    """Every draft is accepted with probability ``alpha``, independently."""

    process: Literal["iid"]
    alpha: Probability


class PerPositionAcceptance(_Acceptance):
    """One rate per draft position of a round; exactly one of the two lists.

    ``conditional[j]`` is c_(j+1); ``unconditional[j]`` is p_(j+1), vLLM's counter (accepted at that
    position / drafts), from which c_i = p_i / p_(i-1). Drafts ``beyond`` the list keep its last
    conditional rate, or are rejected.
    """

    process: Literal["per_position"]
    conditional: tuple[Probability, ...] | None = Field(None, min_length=1)
    unconditional: tuple[Probability, ...] | None = Field(None, min_length=1)
    beyond: Literal["last", "zero"] = "last"

    @model_validator(mode="after")
    def _one_falling_list(self) -> Self:
        if (self.conditional is None) == (self.unconditional is None):
            raise ValueError("give exactly one of conditional and unconditional")
        p = self.unconditional or ()
        for i in range(1, len(p)):
            if p[i] > p[i - 1]:
                raise ValueError(
                    f"unconditional rates never rise, but {p[i]} follows {p[i - 1]}; "
                    "rates that rise with position are conditional ones"
                )
        return self

    def rates(self, depth: int) -> NDArray[np.float64]:
        """Conditional rates of the first ``depth`` positions, shape (depth,)."""
        listed = np.array(self.conditional or _conditional(self.unconditional or ()))
        tail = listed[-1] if self.beyond == "last" else 0.0
        return np.concatenate([listed, np.full(max(0, depth - len(listed)), tail)])[:depth]

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Per-position rates belong to the depth at which they were counted."""
        return (
            "Per-position rates are taken to hold at every depth, though they are counted at one: "
            "rounds start after a rejection, so deeper rounds meet harder first positions.",
        )


class BetaAcceptance(_Decaying):
    """A rate drawn from Beta(a, b), once ``per`` request or afresh per round.

    Give ``a`` and ``b``, or ``mean`` = a / (a + b) and ``concentration`` = a + b.
    """

    process: Literal["beta"]
    a: float | None = Field(None, gt=0)
    b: float | None = Field(None, gt=0)
    mean: OpenProbability | None = None
    concentration: float | None = Field(None, gt=0)
    per: Literal["request", "round"] = "request"

    @model_validator(mode="after")
    def _one_pair(self) -> Self:
        given = [value is not None for value in (self.a, self.b, self.mean, self.concentration)]
        if given not in ([True, True, False, False], [False, False, True, True]):
            raise ValueError("give either a and b, or mean and concentration")
        return self

    @property
    def shape(self) -> tuple[float, float]:
        """The two parameters (a, b)."""
        if self.a is not None and self.b is not None:
            return self.a, self.b
        mean, concentration = self.mean or 0.0, self.concentration or 0.0
        return mean * concentration, (1 - mean) * concentration


class LatentAcceptance(_Decaying):
    """Easy and hard stretches: the log odds of acceptance wander along the output.

    ``mean`` is the average per-token rate, ``spread`` the standard deviation of the log odds,
    ``correlation`` their lag-1 autocorrelation within a request, ``request_share`` the part of
    their variance that is a constant of the request.
    """

    process: Literal["latent"]
    mean: OpenProbability
    spread: float = Field(ge=0, le=20)
    correlation: float = Field(0.0, ge=0, lt=1)
    request_share: Probability = 0.0


class MarkovAcceptance(_Decaying):
    """Good and bad stretches: two states along the output, each with its rate.

    Drafts for output positions in a good stretch are accepted at the rate ``good``, others at
    ``bad``; from one position to the next a good stretch ends with probability ``leave_good``, a bad
    one with ``leave_bad``, so stretches last 1 / leave positions on average.
    """

    process: Literal["markov"]
    good: Probability
    bad: Probability
    leave_good: float = Field(gt=0, le=1)
    leave_bad: float = Field(gt=0, le=1)

    @model_validator(mode="after")
    def _good_is_better(self) -> Self:
        if self.bad > self.good:
            raise ValueError(f"good ({self.good:g}) is at least bad ({self.bad:g}); swap the two states")
        return self


class TraceAcceptance(_Acceptance):
    """Recorded run lengths (docs/acceptance.md describes the file).

    Requests draw rows at random, or take row ``request mod rows`` when ``assign`` is ``in_order``.
    ``span_key`` names the lists of rows without an ``accepted`` key: tokens emitted by a round,
    bonus included. ``recorded_depth`` is the depth of the recording, if the rows do not say it.
    A given ``confidence`` replaces a recorded one.
    """

    process: Literal["trace"]
    path: str
    assign: Literal["drawn", "in_order"] = "drawn"
    span_key: str = "acc_eagle"
    recorded_depth: int | None = Field(None, ge=1)


class MeanLengthAcceptance(_Acceptance):
    """All that is known is a mean: the iid rate that gives it at the ``depth`` it was measured at.

    ``acceptance_length`` is tau, tokens per round with the bonus; ``acceptance_rate`` is accepted /
    drafted at a fixed depth, that is (tau - 1) / depth.
    """

    process: Literal["mean_length"]
    depth: int = Field(ge=1)
    acceptance_length: float | None = Field(None, ge=1)
    acceptance_rate: Probability | None = None
    takes_acceptance_rate: ClassVar[bool] = True

    @model_validator(mode="after")
    def _reachable(self) -> Self:
        if (self.acceptance_length is None) == (self.acceptance_rate is None):
            raise ValueError("give exactly one of acceptance_length and acceptance_rate")
        if self.tau > self.depth + 1:
            raise ValueError(
                f"acceptance_length {self.tau} is beyond depth + 1 = {self.depth + 1}; "
                "it counts the bonus token and needs the depth it was measured at"
            )
        return self

    @property
    def tau(self) -> float:
        """Tokens per round at ``depth``, bonus included."""
        if self.acceptance_length is not None:
            return self.acceptance_length
        return 1 + self.depth * (self.acceptance_rate or 0.0)

    @property
    def alpha(self) -> float:
        """The rate a with (1 - a^(depth+1)) / (1 - a) = tau."""
        if self.tau >= self.depth + 1:
            return 1.0
        from scipy.optimize import brentq  # late: most scenarios never need it

        return float(brentq(lambda a: geometric_tokens(a, self.depth) - self.tau, 0.0, 1.0, xtol=1e-14))

    @property
    def assumptions(self) -> tuple[str, ...]:
        """An iid rate reproduces a mean, not a spread."""
        return (
            f"Acceptance is known only as {self.tau:g} tokens per round at depth {self.depth}; it is "
            f"taken to be independent at alpha = {self.alpha:.4f}, which understates how requests differ.",
        )


AcceptanceConfig = Annotated[
    IidAcceptance
    | PerPositionAcceptance
    | BetaAcceptance
    | LatentAcceptance
    | MarkovAcceptance
    | TraceAcceptance
    | MeanLengthAcceptance,
    Field(discriminator="process"),
]


def geometric_tokens(alpha: float, depth: int) -> float:
    """Tokens of a round of ``depth`` iid drafts: 1 + a + ... + a^depth (Leviathan et al. 2023, eq. 1)."""
    return float(np.power(alpha, np.arange(depth + 1)).sum())


def _conditional(p: tuple[float, ...]) -> list[float]:
    """c_i = p_i / p_(i-1) with p_0 = 1; zero after a position that is never reached."""
    before = (1.0, *p[:-1])
    return [x / y if y > 0 else 0.0 for x, y in zip(p, before, strict=True)]
