"""vLLM's synthetic acceptance, read and written as vLLM means it.

vllm/config/speculative.py (2026): with ``rejection_sample_method: synthetic``, the sampler accepts
draft i of a round with the conditional probability that follows from ``synthetic_acceptance_rates``,
the *unconditional* rates of all ``num_speculative_tokens`` positions (vLLM PR 40662, 41035); or a
``synthetic_acceptance_length`` L stands for the rates of least variance, floor(L - 1) ones, the
fraction that is left, then zeros. Earlier, ``synthetic_acceptance_rate`` (PR 38045) was accepted /
drafted, met by conditional rates that fall by a factor of 0.85 per position or, where none of that
kind is high enough, as little more as it takes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.optimize import brentq

from sim.acceptance.config import AcceptanceConfig, IidAcceptance, PerPositionAcceptance
from sim.errors import InputError

KEYS = ("synthetic_acceptance_rates", "synthetic_acceptance_length", "synthetic_acceptance_rate")
_FALL = 0.85  # vLLM's MIN_ACCEPTANCE_DECAY_FACTOR


def config_of(file: str, fields: Mapping[str, Any]) -> AcceptanceConfig:
    """The process that a speculative config makes vLLM draw; ``InputError`` names what is wrong."""
    method = fields.get("rejection_sample_method", "synthetic")
    if method != "synthetic":
        raise InputError(f"{file}: rejection_sample_method is {method!r}; only 'synthetic' states acceptance")
    depth = fields.get("num_speculative_tokens")
    if type(depth) is not int or depth < 1:
        raise InputError(f"{file}: num_speculative_tokens is {depth!r}; it must be a whole number from 1")
    given = [key for key in KEYS if fields.get(key) is not None]
    if len(given) != 1:
        raise InputError(
            f"{file}: has {' and '.join(given) or 'none'} of {', '.join(KEYS)}; give exactly one"
        )
    value = fields[given[0]]
    if given[0] == "synthetic_acceptance_rate":
        return falling(_number(file, given[0], value, 0, 1), depth)
    rates = _rates(file, value, depth) if given[0] == KEYS[0] else _of_length(file, value, depth)
    return PerPositionAcceptance(process="per_position", unconditional=tuple(rates), beyond="zero")


def _rates(file: str, value: object, depth: int) -> list[float]:
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) != depth:
        raise InputError(f"{file}: {KEYS[0]} must list {depth} rates, one per draft; it is {value!r}")
    rates = [_number(file, KEYS[0], rate, 0, 1) for rate in value]
    if any(after > before for before, after in pairwise(rates)):
        raise InputError(f"{file}: {KEYS[0]} must not rise: they are unconditional; it is {value!r}")
    return rates


def _of_length(file: str, value: object, depth: int) -> list[float]:
    """The rates of least variance: whole drafts, a fraction, none."""
    accepted = _number(file, KEYS[1], value, 1, depth + 1) - 1
    return [float(rate) for rate in np.clip(accepted - np.arange(depth), 0, 1)]


def _number(file: str, key: str, value: object, least: float, most: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise InputError(f"{file}: {key} must lie in {least:g}..{most:g}; it is {value!r}")
    return float(value)


def falling(rate: float, depth: int) -> IidAcceptance:
    """Conditional rates a * g^j with accepted / drafted = ``rate`` over ``depth`` drafts."""

    def accepted(first: float, factor: float) -> float:
        return float(np.cumprod(first * factor ** np.arange(depth)).mean())

    if rate >= 1 or depth == 1:
        return IidAcceptance(process="iid", alpha=rate)
    if accepted(1.0, _FALL) < rate:
        factor = float(brentq(lambda g: accepted(1.0, g) - rate, _FALL, 1.0, xtol=1e-12))
        return IidAcceptance(process="iid", alpha=1.0, depth_decay=factor)
    first = float(brentq(lambda a: accepted(a, _FALL) - rate, 0.0, 1.0, xtol=1e-12))
    return IidAcceptance(process="iid", alpha=first, depth_decay=_FALL)


def fields_of(survival: Sequence[float]) -> dict[str, Any]:
    """What to add to ``--speculative-config``: rates to four digits, which never rise."""
    rates = np.minimum.accumulate(np.round(np.clip(survival, 0, 1), 4))
    return {
        "num_speculative_tokens": len(rates),
        "rejection_sample_method": "synthetic",
        "synthetic_acceptance_rates": rates.tolist(),
    }
