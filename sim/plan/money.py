"""What a fleet costs: money and energy per million output tokens, where prices and power are given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from sim.errors import InputError

_MILLION: Final = 1e6
_S_PER_H: Final = 3600.0


@dataclass(frozen=True)
class Prices:
    """Price of a GPU hour and power of a GPU in watts, by profile; the empty name stands for all others.

    ``gpus_per_replica`` replaces the profiles' own number.
    """

    per_gpu_hour: Mapping[str, float] = field(default_factory=dict)
    watts: Mapping[str, float] = field(default_factory=dict)
    gpus_per_replica: int | None = None

    def of(self, profile: str) -> float | None:
        """Price of a GPU hour under a profile, if one is given."""
        return self.per_gpu_hour.get(profile, self.per_gpu_hour.get(""))

    def watts_of(self, profile: str) -> float | None:
        """Power of a GPU under a profile, if given."""
        return self.watts.get(profile, self.watts.get(""))


def cost_per_million(gpus: int, price_per_hour: float, tokens_per_s: float) -> float:
    """Money per million output tokens of ``gpus`` that make ``tokens_per_s``, idle time paid for."""
    return gpus * price_per_hour / (tokens_per_s * _S_PER_H) * _MILLION


def kwh_per_million(gpus: int, watts: float, tokens_per_s: float) -> float:
    """Kilowatt hours per million output tokens, every GPU drawing ``watts`` all the time."""
    return gpus * watts / 1000 / (tokens_per_s * _S_PER_H) * _MILLION


def by_profile(flag: str, texts: Sequence[str], profiles: Sequence[str]) -> dict[str, float]:
    """Values of ``2.5`` (every profile) and ``NAME=2.5``; raises ``InputError`` for what is neither."""
    found: dict[str, float] = {}
    for text in texts:
        name, _, number = text.rpartition("=")
        if name and name not in profiles:
            known = ", ".join(profiles)
            raise InputError(f"{flag} {text!r}: no profile {name!r} is planned for; there is {known}")
        try:
            value = float(number)
        except ValueError:
            value = -1.0
        if not 0 < value < float("inf"):
            raise InputError(f"{flag} {text!r}: write a number above 0, or PROFILE=NUMBER")
        found[name] = value
    return found
