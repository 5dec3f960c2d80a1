"""Claims of a drafter of stated quality: what it says about each draft before it is verified."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit, ndtri

from sim.acceptance.config import Confidence
from sim.acceptance.quality import temperature_of_ece
from sim.streams import uniforms

Floats = NDArray[np.float64]
Claimed = NDArray[np.float32]


@dataclass(frozen=True)
class Claims:
    """Draws claims from whether drafts would be accepted; deterministic in (seed, request).

    The drafter sees a normal score of unit variance whose mean is 0 for a draft that would be
    rejected and d for one that would be accepted; d = sqrt(2) * probit(auc) gives the stated AUC
    (the equal-variance binormal model: Green & Swets 1966). The claim is the posterior under the
    population's acceptance rate at that depth, ``base`` of shape (max_depth,), its log odds then
    divided by ``temperature``, one number or one per depth. Noise has one stream per depth, so
    neither a longer output nor a larger depth changes a claim.
    """

    seed: int
    auc: float
    temperature: Floats | float
    base: Floats

    def draw(self, request: int, accepted: NDArray[np.bool_], decay: Floats | float = 1.0) -> Claimed:
        """Claims for ``accepted`` of shape (output_tokens, max_depth), in the same shape.

        ``accepted[p, j]`` says whether draft ``j`` would be accepted given that those before it
        are; ``decay`` multiplies the base rate and broadcasts to the same shape.
        """
        distance = sqrt(2) * ndtri(self.auc)
        score = distance * accepted + self._noise(request, len(accepted))
        odds = logit(self.base * decay) + distance * score - distance**2 / 2
        return np.asarray(expit(odds / self.temperature), dtype=np.float32)

    def _noise(self, request: int, output_tokens: int) -> Floats:
        noise = np.empty((output_tokens, len(self.base)))
        for depth in range(len(self.base)):
            noise[:, depth] = uniforms(self.seed, f"confidence/{depth}", request, output_tokens)
        return np.asarray(ndtri(noise))


def make_claims(config: Confidence | None, seed: int, base: Callable[[], Floats]) -> Claims | None:
    """Claims of the configured quality around the population rates ``base()``; None if not configured."""
    if config is None:
        return None
    rates = base()
    return Claims(seed, config.auc, _temperature(config, rates), rates)


def _temperature(config: Confidence, base: Floats) -> Floats | float:
    """The stated temperature, or the one per depth that gives the stated calibration error."""
    if config.ece is None:
        return 1.0 if config.temperature is None else config.temperature
    bold = config.direction != "timid"
    return np.array([temperature_of_ece(config.ece, config.auc, rate, bold=bold) for rate in base.tolist()])
