"""How many experts the tokens of a step reach, and how many of them on the fullest device.

A token chooses ``active`` of ``experts``. With popularity q_e (the chance that a token chooses
expert e; they sum to ``active``) n independent tokens reach

    sum over e of 1 - (1 - q_e)^n

experts, which for even routing is E (1 - (1 - k/E)^n) (MoESD, arXiv 2505.19645). Each addend is
concave in q_e, so no skew reaches more than even routing does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from calibrate.compose.tables import Floats


@dataclass(frozen=True)
class Routing:
    """Popularity falls as ``rank ** -skew`` (0: even); experts lie on ``devices``.

    Experts are dealt to devices in turn by popularity, so the first device is the fullest.
    ``dp`` replicas with as many tokens each send theirs to the same experts.
    """

    experts: int
    active: int
    skew: float = 0.0
    devices: int = 1
    dp: int = 1

    def __post_init__(self) -> None:
        """``ValueError`` where experts cannot be dealt out evenly."""
        if not 0 < self.active <= self.experts or self.skew < 0:
            raise ValueError(f"{self.active} of {self.experts} experts with skew {self.skew}: not a routing")
        if self.devices < 1 or self.dp < 1 or self.experts % self.devices:
            raise ValueError(
                f"{self.experts} experts cannot be dealt to {self.devices} devices of {self.dp} replicas"
            )

    def __str__(self) -> str:
        even = "even routing" if self.skew == 0 else f"popularity rank^-{self.skew:g}"
        where = "" if self.devices == 1 else f", the fullest of {self.devices} devices"
        return f"{self.active} of {self.experts} experts, {even}{where}" + (
            f", {self.dp} replicas" if self.dp > 1 else ""
        )

    def popularity(self) -> Floats:
        """Chance of each expert to be among a token's, most popular first."""
        weight = np.arange(1, self.experts + 1, dtype=np.float64) ** -self.skew
        q: Floats = np.zeros(self.experts)
        sure = 0
        while sure < self.active:
            rest = weight[sure:] * (self.active - sure) / weight[sure:].sum()
            if rest[0] <= 1.0:
                q[sure:] = rest
                break
            q[sure] = 1.0
            sure += 1
        return q

    def covered(self, tokens: float) -> float:
        """Experts that ``tokens`` tokens reach, over all devices, in the mean."""
        return float(self._chances(tokens).sum())

    def reached(self, tokens: float) -> float:
        """Experts reached on the fullest device when every replica has ``tokens`` tokens.

        The device with the most popular experts, and what the fullest of several equal ones has
        beyond the mean: sqrt(2 ln d) standard deviations, all its experts at most.
        """
        own = self._chances(self.dp * tokens)[:: self.devices]
        spread = math.sqrt(2 * math.log(self.devices) * float((own * (1 - own)).sum()))
        return min(float(self.experts // self.devices), float(own.sum()) + spread)

    def here(self, tokens: float) -> float:
        """Tokens of all replicas that have an expert on the fullest device."""
        if self.devices == 1:
            return self.dp * tokens
        away = float(np.prod(1.0 - self.popularity()[:: self.devices]))
        return self.dp * tokens * (1.0 - away)

    def imbalance(self) -> float:
        """Expert-token pairs of the fullest device over the mean of all devices, many tokens."""
        q = self.popularity()
        return float(q[:: self.devices].sum() * self.devices / q.sum())

    def _chances(self, tokens: float) -> Floats:
        chances: Floats = 1.0 - (1.0 - self.popularity()) ** tokens
        return chances
