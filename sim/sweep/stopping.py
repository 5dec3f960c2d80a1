"""When a cell needs no further seed: its answer is as sure as was asked for.

Fixed-width sequential sampling (Chow and Robbins, Annals of Mathematical Statistics 36(2), 1965):
after every seed the paired intervals are taken anew, and the cell stops when they are narrow
enough. Fewer than ``MIN_SEEDS`` seeds never stop it, since an interval of two or three pairs may
be narrow by chance.
"""

from __future__ import annotations

from typing import Final

from sim.results.compare import Cell, best_policy, paired_difference

MIN_SEEDS: Final = 5


def is_tight(cell: Cell, baseline: str, metric: str, error: float, precision: float) -> bool:
    """Whether the best policy's difference from the baseline, and from those even with it, is known.

    Known is a relative difference whose 95 % interval is at most +- ``precision``. A cell in which
    every run so far was unstable is known to be overloaded.
    """
    if all(run.unstable for policy in cell.policies for run in policy.runs):
        return True
    best = best_policy(cell, metric, error)
    if best.label is None:
        return False
    rivals = {baseline, *best.even} - {best.label}
    leader = cell.policy(best.label).values(metric).tolist()
    return all(
        paired_difference(metric, cell.policy(label).values(metric).tolist(), leader).ratio_half_width
        <= precision
        for label in rivals
        if not cell.policy(label).unstable
    )
