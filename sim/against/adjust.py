"""The few numbers that may be adjusted, and how each enters a run.

None of them changes the scenario's structure: a time per step, factors on the passes of the target
and of the drafter, and a shift of the log odds of acceptance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from scipy.special import expit, logit

from calibrate.profile import Drafter, Profile, Term
from sim.acceptance.config import (
    AcceptanceConfig,
    BetaAcceptance,
    IidAcceptance,
    LatentAcceptance,
    MarkovAcceptance,
    MeanLengthAcceptance,
    PerPositionAcceptance,
    geometric_tokens,
)
from sim.engine.simulate import Setup
from sim.errors import InputError
from sim.units import NS_PER_MS

PARAMETERS: Final = {
    "overhead": "host time of every step, ms (engine.step_overhead)",
    "verify": "factor on every pass of the target",
    "draft": "factor on every pass of the drafter",
    "acceptance": "shift of the log odds of acceptance",
}


@dataclass(frozen=True)
class Adjustment:
    """What is changed; the default changes nothing.

    ``overhead_ms`` comes on top of the scenario's own ``step_overhead``. ``max_num_seqs`` is no
    parameter of a fit: ``diagnose`` tries it when too few sequences decode.
    """

    overhead_ms: float = 0.0
    verify: float = 1.0
    draft: float = 1.0
    acceptance: float = 0.0
    max_num_seqs: int | None = None

    def applied(self, setup: Setup) -> Setup:
        """The run with costs and engine changed; acceptance is changed before it is built."""
        overhead = setup.engine.step_overhead + round(self.overhead_ms * NS_PER_MS)
        engine: dict[str, int] = {"step_overhead": overhead}
        if self.max_num_seqs is not None:
            engine["max_num_seqs"] = self.max_num_seqs
        return replace(
            setup,
            engine=setup.engine.model_copy(update=engine),
            profile=verify_scaled(setup.profile, self.verify),
            drafter=None if setup.drafter is None else draft_scaled(setup.drafter, self.draft),
        )


UNCHANGED: Final = Adjustment()


def verify_scaled(profile: Profile, factor: float, note: str = "") -> Profile:
    """The profile with every pass of its target ``factor`` times as long."""
    if factor == 1:
        return profile
    target = profile.target
    passes = {
        name: _scaled(getattr(target, name), factor, note) for name in ("verify", "exact", "eager_extra")
    }
    return profile.model_copy(update={"target": target.model_copy(update=passes)})


def draft_scaled(drafter: Drafter, factor: float, note: str = "") -> Drafter:
    """The drafter with every pass ``factor`` times as long."""
    if factor == 1:
        return drafter
    return drafter.model_copy(
        update={
            "first": _scaled(drafter.first, factor, note),
            "next": _scaled(drafter.next, factor, note),
            "exact": {name: _scaled(terms, factor, note) for name, terms in drafter.exact.items()},
        }
    )


def _scaled(terms: Sequence[Term], factor: float, note: str) -> tuple[Term, ...]:
    return tuple(_term(term, factor, note) for term in terms)


def _term(term: Term, factor: float, note: str) -> Term:
    """One addend; with a note it says so and is no longer as measured."""
    curve = term.curve and term.curve.model_copy(update={"ns": tuple(factor * ns for ns in term.curve.ns)})
    update = {
        "curve": curve,
        "fixed_ns": factor * term.fixed_ns,
        "per_ns": {variable: factor * ns for variable, ns in term.per_ns.items()},
    }
    marks = {"mark": "composed", "source": f"{term.source}; {note}"} if note else {}
    return term.model_copy(update={**update, **marks})


def shifted(config: AcceptanceConfig, shift: float) -> AcceptanceConfig:
    """The process with the log odds of its rates moved; ``InputError`` for a recorded one."""
    if shift == 0:
        return config
    if isinstance(config, IidAcceptance):
        return config.model_copy(update={"alpha": _odds(config.alpha, shift)})
    if isinstance(config, PerPositionAcceptance):
        rates = config.rates(len(config.conditional or config.unconditional or ()))
        moved = tuple(_odds(float(rate), shift) for rate in rates)
        return config.model_copy(update={"conditional": moved, "unconditional": None})
    if isinstance(config, MeanLengthAcceptance):
        length = geometric_tokens(_odds(config.alpha, shift), config.depth)
        return config.model_copy(update={"acceptance_length": length, "acceptance_rate": None})
    return _spread_shifted(config, shift)


def _spread_shifted(config: AcceptanceConfig, shift: float) -> AcceptanceConfig:
    """Processes whose rates differ between requests or stretches."""
    if isinstance(config, BetaAcceptance):
        a, b = config.shape
        size = {"mean": _odds(a / (a + b), shift), "concentration": a + b}
        return config.model_copy(update={"a": None, "b": None, **size})
    if isinstance(config, LatentAcceptance):
        return config.model_copy(update={"mean": _odds(config.mean, shift)})
    if isinstance(config, MarkovAcceptance):
        states = {key: _odds(getattr(config, key), shift) for key in ("good", "bad")}
        return config.model_copy(update=states)
    raise InputError(
        "acceptance: a recorded trace has no rate to adjust; state a process, such as iid, or leave "
        "acceptance out of --adjust"
    )


def _odds(rate: float, shift: float) -> float:
    return float(expit(logit(rate) + shift))
