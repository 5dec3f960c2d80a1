"""A scenario's acceptance moved to a stated mean: the chance that the first draft of a round survives."""

from __future__ import annotations

from collections.abc import Sequence

from scipy.optimize import brentq

from sim.acceptance.config import (
    AcceptanceConfig,
    BetaAcceptance,
    IidAcceptance,
    LatentAcceptance,
    MarkovAcceptance,
    MeanLengthAcceptance,
    PerPositionAcceptance,
)
from sim.against.adjust import shifted
from sim.errors import InputError
from sim.scenario.model import Scenario

_MOST_SHIFT = 40.0
"""Log odds; a rate of 1 - 1e-9 moved by so much is below 1e-8."""


def mean_rate(config: AcceptanceConfig) -> float:
    """Chance that the first draft of a round is accepted, over all rounds; ``InputError`` for a trace."""
    if isinstance(config, IidAcceptance | MeanLengthAcceptance):
        return config.alpha
    if isinstance(config, PerPositionAcceptance):
        return float(config.rates(1)[0])
    if isinstance(config, BetaAcceptance):
        a, b = config.shape
        return a / (a + b)
    if isinstance(config, LatentAcceptance):
        return config.mean
    if isinstance(config, MarkovAcceptance):
        good = config.leave_bad / (config.leave_good + config.leave_bad)
        return good * config.good + (1 - good) * config.bad
    raise InputError(
        "acceptance: a recorded trace has no rate to vary; state a process, such as latent (leadline fit "
        "makes one from a recording), or leave acceptance out of --over"
    )


def with_mean(scenario: Scenario, mean: float) -> Scenario:
    """The scenario with acceptance at ``mean``, the average over its classes.

    The log odds of every rate move by one amount, which keeps how rates differ between requests,
    positions and classes. At 0 and 1 nothing can differ, and every process is the iid one.
    """
    kinds = scenario.workload.classes
    shares = [kind.share for kind in kinds] or [1.0]
    configs = [config or IidAcceptance(process="iid", alpha=mean) for config in scenario.acceptances]
    moved = _moved(configs, shares, mean)
    if not kinds:
        return scenario.model_copy(update={"acceptance": moved[0]})
    classes = tuple(
        kind.model_copy(update={"acceptance": config}) for kind, config in zip(kinds, moved, strict=True)
    )
    workload = scenario.workload.model_copy(update={"classes": classes})
    return scenario.model_copy(update={"workload": workload})


def _moved(
    configs: Sequence[AcceptanceConfig], shares: Sequence[float], mean: float
) -> list[AcceptanceConfig]:
    known = [mean_rate(config) for config in configs]
    if mean in (0, 1) or any(rate in (0, 1) for rate in known):
        return [_iid(config, mean) for config in configs]

    def off_by(shift: float) -> float:
        rates = (mean_rate(shifted(config, shift)) for config in configs)
        return sum(share * rate for share, rate in zip(shares, rates, strict=True)) - mean

    if abs(off_by(0.0)) < 1e-9:
        return list(configs)
    shift = float(brentq(off_by, -_MOST_SHIFT, _MOST_SHIFT, xtol=1e-12))
    return [shifted(config, shift) for config in configs]


def _iid(config: AcceptanceConfig, mean: float) -> IidAcceptance:
    kept = ("decay", "confidence", "match", "sibling")
    return IidAcceptance(process="iid", alpha=mean, **{name: getattr(config, name) for name in kept})
