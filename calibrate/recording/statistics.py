"""What a recording says of itself, exactly where it can be exact."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize, minimize_scalar
from scipy.special import expit, logit, xlog1py, xlogy

Floats = NDArray[np.float64]

DEPTHS: Final = (1, 2, 4, 8)
SPREAD_DEPTH: Final = 4
BINS: Final = 15
LEAST: Final = 0.0005
"""Confidence is kept to three decimals; 0 and 1 stand for half a unit more and less."""


def by_start(chance: Floats, depth: int) -> Floats:
    """Chance of draft ``j`` of a round started at ``p``, shape (requests, positions, depth).

    A draft model's chances start again behind the end, as a replay's do.
    """
    if chance.ndim == 3:
        return chance[:, :, :depth]
    round_again = np.concatenate((chance, chance[:, :depth]), axis=1)
    return np.lib.stride_tricks.sliding_window_view(round_again, depth, axis=1)[:, : chance.shape[1]]


@dataclass(frozen=True)
class Walk:
    """Expectations over luck of fixed-depth rounds, last rounds whole.

    ``tokens`` has shape (requests,); ``starts``, rounds that start at a position, shape (requests,
    positions). ``reached[j]`` and ``accepted[j]`` count drafts over all requests, shape (depth,).
    """

    tokens: Floats
    starts: Floats
    reached: Floats
    accepted: Floats

    @property
    def rounds(self) -> Floats:
        """Rounds of each request, shape (requests,)."""
        return np.asarray(self.starts.sum(axis=1))

    @property
    def tokens_per_round(self) -> float:
        """Total tokens over total rounds."""
        return float(self.tokens.sum() / self.rounds.sum())

    @property
    def standard_error(self) -> float:
        """Of ``tokens_per_round`` over the choice of requests, luck averaged out."""
        rest = self.tokens - self.tokens_per_round * self.rounds
        return float(rest.std(ddof=1) * np.sqrt(len(rest)) / self.rounds.sum())


def walk(chance: Floats, depth: int) -> Walk:
    """Propagate the expected number of rounds that start at each position."""
    starts = by_start(chance, depth)
    requests, positions, _ = starts.shape
    reach = np.concatenate((np.ones((requests, positions, 1)), np.cumprod(starts, axis=2)), axis=2)
    ends = reach - np.concatenate((reach[:, :, 1:], np.zeros((requests, positions, 1))), axis=2)
    visits = np.zeros((requests, positions + depth + 1))
    visits[:, 0] = 1
    for position in range(positions):
        visits[:, position + 1 : position + depth + 2] += visits[:, position, None] * ends[:, position]
    inside, beyond = visits[:, :positions], visits[:, positions:]
    met = (inside[:, :, None] * reach).sum(axis=(0, 1))
    tokens = (beyond * np.arange(positions, positions + depth + 1)).sum(axis=1)
    return Walk(tokens, inside, met[:-1], met[1:])


def describe(chance: Floats, confidence: Floats) -> dict[str, Any]:
    """All statistics of one recording, as plain data."""
    deepest = chance.shape[2] if chance.ndim == 3 else DEPTHS[-1]
    walks = {depth: walk(chance, depth) for depth in DEPTHS if depth <= deepest}
    last = walks[max(walks)]
    first = chance[:, :, 0] if chance.ndim == 3 else chance
    return {
        "mean_chance": _short(first.mean()),
        "mean_chance_by_draft": [_short(each) for each in by_start(chance, deepest).mean(axis=(0, 1))],
        "tokens_per_round": {str(depth): _short(each.tokens_per_round) for depth, each in walks.items()},
        "standard_error": {str(depth): _short(each.standard_error) for depth, each in walks.items()},
        "conditional_by_position": [_short(each) for each in _ratio(last.accepted, last.reached)],
        "conditional_from_any_start": [_short(each) for each in _from_any_start(by_start(chance, deepest))],
        "requests": _spread(first, walks[SPREAD_DEPTH]),
        "autocorrelation_of_chance": {str(lag): _short(autocorrelation(first, lag)) for lag in (1, 2, 4, 8)},
        "confidence": calibration(chance, confidence),
    }


def _from_any_start(starts: Floats) -> Floats:
    reach = np.cumprod(starts, axis=2).mean(axis=(0, 1))
    return _ratio(reach, np.concatenate(([1.0], reach[:-1])))


def _ratio(part: Floats, whole: Floats) -> Floats:
    """``part / whole``, 0 where there is nothing."""
    return np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)


def _spread(chance: Floats, walked: Walk) -> dict[str, float]:
    """How requests differ: their mean chances, and their tokens per round at depth 4, luck averaged out."""
    means = chance.mean(axis=1)
    lucky = np.sqrt((means * (1 - means)).mean() / chance.shape[1])
    per_round = walked.tokens / walked.rounds
    return {
        "mean_chance_sd": _short(means.std(ddof=1)),
        "mean_chance_sd_if_equal_and_independent": _short(lucky),
        "tokens_per_round_4_sd": _short(per_round.std(ddof=1)),
        "tokens_per_round_4_p5": _short(np.quantile(per_round, 0.05)),
        "tokens_per_round_4_p95": _short(np.quantile(per_round, 0.95)),
    }


def autocorrelation(chance: Floats, lag: int) -> float:
    """Correlation of chances ``lag`` positions apart, both as deviations from their request's mean; or 0."""
    rest = chance - chance.mean(axis=1, keepdims=True)
    variance = float((rest**2).mean())
    return float((rest[:, lag:] * rest[:, :-lag]).mean()) / variance if variance else 0.0


def calibration(chance: Floats, confidence: Floats) -> dict[str, float]:
    """How well confidence tells and states acceptance; errors are over the odd requests.

    Fitted on the even ones: ``temperature``, which divides the confidence's log odds, and a line
    of slope and shift over the same log odds.
    """
    fitted = fit_temperature(confidence[::2].ravel(), chance[::2].ravel())
    slope, shift = fit_line(confidence[::2].ravel(), chance[::2].ravel())
    told, true = confidence[1::2].ravel(), chance[1::2].ravel()
    return {
        "mean": _short(confidence.mean()),
        "auc": _short(auc(confidence.ravel(), chance.ravel())),
        "ece": _short(expected_calibration_error(told, true)),
        "temperature": _short(fitted),
        "ece_at_temperature": _short(expected_calibration_error(tempered(told, fitted), true)),
        "slope": _short(slope),
        "shift": _short(shift),
        "ece_on_line": _short(expected_calibration_error(on_line(told, slope, shift), true)),
    }


def auc(confidence: Floats, chance: Floats) -> float:
    """Chance that an accepted draft claims more than a rejected one, ties counted half.

    A draft counts as accepted with weight ``chance`` and as rejected with the rest; 1/2 if all are one.
    """
    levels, level = np.unique(confidence, return_inverse=True)
    accepted = np.bincount(level, chance, len(levels))
    rejected = np.bincount(level, 1 - chance, len(levels))
    below = np.cumsum(rejected) - rejected
    pairs = float(accepted.sum() * rejected.sum())
    return float((accepted * (below + rejected / 2)).sum()) / pairs if pairs else 0.5


def expected_calibration_error(confidence: Floats, chance: Floats) -> float:
    """Mean distance of confidence and acceptance over 15 bins of equal width (Guo et al. 2017)."""
    into = np.minimum((confidence * BINS).astype(int), BINS - 1)
    gaps = np.bincount(into, confidence - chance, BINS)
    return float(np.abs(gaps).sum() / len(confidence))


def fit_temperature(confidence: Floats, chance: Floats) -> float:
    """The temperature of least cross entropy (Guo et al. 2017)."""

    def loss(log_temperature: float) -> float:
        return _nats(tempered(confidence, float(np.exp(log_temperature))), chance)

    return float(np.exp(minimize_scalar(loss, bounds=(-3, 3), method="bounded").x))


def tempered(confidence: Floats, temperature: float) -> Floats:
    """Confidence with its log odds divided by ``temperature``."""
    return on_line(confidence, 1 / temperature, 0.0)


def fit_line(confidence: Floats, chance: Floats) -> tuple[float, float]:
    """Slope and shift of the log odds of least cross entropy (Platt 1999)."""

    def loss(line: Floats) -> float:
        return _nats(on_line(confidence, float(line[0]), float(line[1])), chance)

    found = minimize(loss, np.array([1.0, 0.0]))
    return float(found.x[0]), float(found.x[1])


def on_line(confidence: Floats, slope: float, shift: float) -> Floats:
    """Confidence with its log odds on a line."""
    return np.asarray(expit(slope * logit(confidence.clip(LEAST, 1 - LEAST)) + shift))


def _nats(told: Floats, chance: Floats) -> float:
    """Cross entropy of claims and chances."""
    return -float((xlogy(chance, told) + xlog1py(1 - chance, -told)).mean())


def _short(value: float | np.floating[Any]) -> float:
    return float(f"{float(value):.4g}")
