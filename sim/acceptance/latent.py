"""Autocorrelated difficulty: log odds of acceptance that wander along the output."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit, ndtri

from sim.acceptance.spans import Spans

Floats = NDArray[np.float64]

_GRID = np.linspace(-9, 9, 1801)
_WEIGHTS = np.exp(-(_GRID**2) / 2) / np.exp(-(_GRID**2) / 2).sum()


@dataclass(frozen=True)
class Latent:
    """Log odds ``centre + spread * z``, z standard normal at every position.

    ``z`` is a constant of the request with ``share`` of the variance, plus a stationary AR(1)
    process along the output with lag-1 ``correlation``.
    """

    seed: int
    centre: float
    spread: float
    correlation: float
    share: float

    def __call__(self, spans: Spans, /) -> Floats:
        """Draw acceptance at every output position, flat."""
        return np.asarray(expit(self.log_odds(spans)))

    def log_odds(self, spans: Spans) -> Floats:
        """Log odds of acceptance, flat; those of a prefix are a prefix."""
        drawn = spans.longer(by=1)  # the first is the request's own
        normal = ndtri(drawn.uniforms(self.seed, "acceptance/latent"))
        own = normal[drawn.starts]
        within = _autoregress(np.delete(normal, drawn.starts), self.correlation, spans)
        z = sqrt(self.share) * spans.spread(own) + sqrt(1 - self.share) * within
        return np.asarray(self.centre + self.spread * z)


def _autoregress(noise: Floats, correlation: float, spans: Spans) -> Floats:
    """Stationary AR(1) of unit variance along every request, driven by unit normals, flat.

    x_t = sum over j of c^j e_(t-j), summed by doubling: after the pass with ``shift`` the terms up
    to 2 ``shift`` are in; what is left out is below the last bit of a double.
    """
    state = noise * sqrt(1 - correlation**2)
    begins = spans.starts[spans.counts > 0]
    state[begins] = noise[begins]
    shift, weight, longest = 1, correlation, int(spans.counts.max(initial=0))
    while shift < longest and weight > 1e-18:
        earlier = weight * state[:-shift]
        state[shift:] += np.where(spans.positions[shift:] < shift, 0.0, earlier)
        shift, weight = 2 * shift, weight * weight
    return state


def centre_for_mean(mean: float, spread: float) -> float:
    """Find the m for which sigmoid(m + spread * N) averages to ``mean``, N standard normal.

    The average is a trapezoid sum, which converges faster than any power of its step here
    (the integrand is analytic and vanishes at both ends).
    """
    from scipy.optimize import brentq  # late: most scenarios never need it

    reach = (abs(logit(mean)) + 1) * (1 + spread)

    def excess(centre: float) -> float:
        return float(_WEIGHTS @ expit(centre + spread * _GRID)) - mean

    return float(brentq(excess, -reach, reach, xtol=1e-13))
