"""Means over many paths: acceptance by depth, and tokens per round of fixed-depth walks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Runs = NDArray[np.uint8]


class Estimate(NamedTuple):
    """A mean and its standard error over requests."""

    mean: float
    standard_error: float


@dataclass(frozen=True)
class Survey:
    """Statistics of a sample of paths, ``runs[i]`` of shape (output_tokens of i,)."""

    runs: Sequence[Runs]

    def tokens_per_round(self, depth: int) -> Estimate:
        """Tokens over rounds when every path is walked at ``depth``, last rounds untrimmed.

        A ratio estimate: by Wald's identity counting the round that crosses the end whole makes
        it free of end effects.
        """
        tokens, rounds = np.array([walk(run, depth) for run in self.runs], dtype=np.float64).T
        mean = tokens.sum() / rounds.sum()
        spread = np.std(tokens - mean * rounds, ddof=1) if len(tokens) > 1 else np.nan
        return Estimate(float(mean), float(spread * np.sqrt(len(tokens)) / rounds.sum()))

    def survival(self, depth: int) -> Floats:
        """Share of rounds that accept at least 1, 2, ... drafts in walks at ``depth``, shape (depth,)."""
        counts = np.zeros(depth + 1)
        for run in self.runs:
            counts += np.bincount(rounds(run, depth), minlength=depth + 1)
        return np.asarray(counts[::-1].cumsum()[-2::-1] / counts.sum())

    def conditional_rates(self, max_depth: int) -> Floats:
        """Average acceptance of draft ``j`` given those before it, over all starts, shape (max_depth,).

        A depth that no run reaches takes the rate of the depth before it.
        """
        counts = np.zeros(max_depth + 1)
        for run in self.runs:
            counts += np.bincount(np.minimum(run, max_depth), minlength=max_depth + 1)
        reached = counts[::-1].cumsum()[::-1]
        rates = np.zeros(max_depth)
        for depth in range(max_depth):
            before = rates[depth - 1] if depth else 0.0
            rates[depth] = reached[depth + 1] / reached[depth] if reached[depth] else before
        return rates


def rounds(run: Runs, depth: int) -> list[int]:
    """Accepted drafts of each round of a generation that always drafts ``depth``."""
    capped = np.minimum(run, depth).tolist()
    position, accepted = 0, []
    while position < len(capped):
        accepted.append(capped[position])
        position += capped[position] + 1
    return accepted


def walk(run: Runs, depth: int) -> tuple[int, int]:
    """Tokens and rounds of a generation that always drafts ``depth``, its last round whole."""
    accepted = rounds(run, depth)
    return sum(accepted) + len(accepted), len(accepted)
