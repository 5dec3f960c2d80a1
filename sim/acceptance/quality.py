"""How good claims are: whether they rank drafts (AUC), and whether they mean what they say (ECE).

Claims are a drafter's stated probabilities that its drafts are accepted, given that the drafts
before them are; drafts behind a rejection have no outcome and belong to neither figure.
"""

from __future__ import annotations

from math import log, sqrt

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, logit, ndtri

from sim.errors import InputError

Floats = NDArray[np.float64]

_GRID = np.linspace(-9, 9, 1801)
_WEIGHTS = np.exp(-(_GRID**2) / 2) / np.exp(-(_GRID**2) / 2).sum()
_EXTREME = 1e-12  # a claim of exactly 0 or 1 would have no finite log odds


def auc(claims: ArrayLike, accepted: ArrayLike) -> float:
    """Chance that an accepted draft claims more than a rejected one; a tie counts half.

    ``claims`` and ``accepted`` have one shape. ``InputError`` unless both outcomes occur.
    """
    from scipy.stats import rankdata  # late: a slow import that no run needs

    claimed, passed = _pairs(claims, accepted)
    hits, misses = passed.sum(), len(passed) - passed.sum()
    if not hits or not misses:
        raise InputError("the AUC needs accepted and rejected drafts; all of these have one outcome")
    ranks = rankdata(claimed)
    return float((ranks[passed].sum() - hits * (hits + 1) / 2) / (hits * misses))


def ece(claims: ArrayLike, accepted: ArrayLike, bins: int = 15) -> float:
    """Expected calibration error: |mean claim - acceptance| over bins of equal width, by their size.

    Guo et al. 2017 (arXiv 1706.04599), section 2; 15 bins as there.
    """
    claimed, passed = _pairs(claims, accepted)
    place = np.minimum((claimed * bins).astype(np.int64), bins - 1)
    gaps = np.bincount(place, weights=claimed - passed, minlength=bins)
    return float(np.abs(gaps).sum() / len(claimed))


def calibrating_temperature(claims: ArrayLike, accepted: ArrayLike) -> float:
    """Number by which to divide the claims' log odds so that they fit best (least log loss).

    Temperature scaling (Guo et al. 2017, section 4.2); DSpark fits one such number per position.
    """
    from scipy.optimize import minimize_scalar  # late: as above

    claimed, passed = _pairs(claims, accepted)
    odds = logit(np.clip(claimed, _EXTREME, 1 - _EXTREME)) * np.where(passed, 1, -1)
    loss = minimize_scalar(lambda t: float(np.logaddexp(0, -odds / np.exp(t)).sum()), bounds=(-5, 5))
    return float(np.exp(loss.x))


def temperature_of_ece(error: float, auc: float, rate: float, *, bold: bool) -> float:
    """Temperature at which claims of this AUC about drafts of mean acceptance ``rate`` err by ``error``.

    The error is the mean of |claim - acceptance given the claim| in the binormal model of
    ``confidence.Claims``, without bins. ``InputError`` if no temperature errs by that much.
    """
    from scipy.optimize import brentq  # late: as above

    if error == 0 or rate in (0.0, 1.0):
        return 1.0
    odds, weights = posterior(auc, rate)
    extreme = -12.0 if bold else 12.0

    def excess(log_temperature: float) -> float:
        return float(weights @ np.abs(expit(odds / np.exp(log_temperature)) - expit(odds))) - error

    if excess(extreme) < 0:
        raise InputError(
            f"confidence.ece is {error:g}, but {'bold' if bold else 'timid'} claims of AUC {auc:g} about "
            f"drafts accepted at {rate:.3g} err by {excess(extreme) + error:.3g} at most; lower it"
        )
    return float(np.exp(brentq(excess, log(1.0), extreme, xtol=1e-12)))


def posterior(auc: float, rate: float) -> tuple[Floats, Floats]:
    """Calibrated log odds of a drafter's claims and their weights, over a grid of scores.

    The score is N(0, 1) for rejected drafts and N(d, 1) for accepted ones, d = sqrt(2) probit(auc).
    """
    distance = sqrt(2) * ndtri(auc)
    scores = np.concatenate([_GRID, _GRID + distance])
    weights = np.concatenate([(1 - rate) * _WEIGHTS, rate * _WEIGHTS])
    return logit(rate) + distance * scores - distance**2 / 2, weights


def _pairs(claims: ArrayLike, accepted: ArrayLike) -> tuple[Floats, NDArray[np.bool_]]:
    """Both as flat arrays; ``InputError`` unless they are as many probabilities and outcomes."""
    claimed = np.asarray(claims, dtype=np.float64).ravel()
    passed = np.asarray(accepted).astype(bool).ravel()
    if len(claimed) != len(passed) or not len(claimed):
        raise InputError(f"{len(claimed)} claims and {len(passed)} outcomes; give one outcome per claim")
    if not np.all((claimed >= 0) & (claimed <= 1)):
        raise InputError("claims are probabilities from 0 to 1; divide percentages by 100")
    return claimed, passed
