"""How often the interval holds the truth when seeds stop as soon as it is narrow.

    python -m tests.sweep.coverage

prints a table for docs/sweeps.md: normal ratios around 0.9, stopped by the rule of the simulator.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sim.results.compare import paired_difference
from sim.sweep.stopping import MIN_SEEDS

TRIALS, MOST, TRUTH = 4000, 200, 0.9


def stopped(noise: NDArray[np.float64], precision: float) -> tuple[int, bool]:
    """Seeds used, and whether the interval then holds the true ratio."""
    base, other = np.ones(len(noise)), TRUTH + noise
    for count in range(MIN_SEEDS, len(noise) + 1):
        found = paired_difference("tpot_mean_ms", base[:count].tolist(), other[:count].tolist())
        if found.ratio_half_width <= precision:
            break
    return count, abs(found.ratio - TRUTH) <= found.ratio_half_width


def coverage(spread: float, precision: float, trials: int = TRIALS) -> tuple[float, float]:
    """Mean seeds used, and share of intervals that hold the truth."""
    noise = np.random.default_rng(1).normal(0, spread, (trials, MOST))
    found = np.array([stopped(row, precision) for row in noise])
    return float(found[:, 0].mean()), float(found[:, 1].mean())


def main() -> None:
    """Print the table."""
    print("| spread between seeds | precision | seeds used, mean | intervals that hold the truth |")
    print("|---|---|---|---|")
    for spread, precision in ((0.01, 0.02), (0.02, 0.02), (0.04, 0.02), (0.08, 0.02)):
        seeds, holds = coverage(spread, precision)
        print(f"| {spread:.0%} | {precision:.0%} | {seeds:.1f} | {holds:.1%} |")


if __name__ == "__main__":
    main()
