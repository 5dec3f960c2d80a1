"""What the runs at one point say: figures per policy, the best policy, and the best fixed depth."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sim.map.model import At, Choice, Figures, Point
from sim.results.compare import Cell, Difference, PolicyResult, best_policy, paired_difference
from sim.results.metrics import Metrics
from sim.results.names import METRICS


@dataclass(frozen=True)
class Judge:
    """How points are judged: by which metric, against which baseline, within which stated error.

    ``labels`` are the policies in order; ``depths`` those that stand for fixed depths.
    """

    metric: str
    error: float
    baseline: str
    labels: tuple[str, ...]
    depths: Mapping[int, str]

    def point(
        self, at: At, runs: Sequence[Sequence[Metrics]], rate_per_s: float, context_tokens: float
    ) -> Point:
        """The point whose runs are given by seed, then by policy."""
        cell = Cell("", tuple(map(PolicyResult, self.labels, zip(*runs, strict=True))))
        fixed = Cell("", tuple(cell.policy(label) for label in self.depths.values()))
        policy = self._choice(cell)
        figures = {result.label: self._figures(cell, result, policy.best) for result in cell.policies}
        return Point(at, figures, policy, self._choice(fixed), rate_per_s, context_tokens)

    def _choice(self, cell: Cell) -> Choice:
        best = best_policy(cell, self.metric, self.error)
        if best.label is None:
            return Choice(None, (), math.nan, math.nan, None)
        over = self._rival(cell, best.label)
        if over is None:
            return Choice(best.label, best.even, math.nan, math.nan, None)
        found = self._difference(cell, over, best.label)
        gain = 1 - found.ratio if METRICS[self.metric].better == "lower" else found.ratio - 1
        return Choice(best.label, best.even, gain, found.ratio_half_width, over)

    def _rival(self, cell: Cell, best: str) -> str | None:
        """The baseline, or the next best where it is best itself; ``None`` if that is unstable."""
        if best != self.baseline:
            base = next((each for each in cell.policies if each.label == self.baseline), None)
            return self.baseline if base is not None and not base.unstable else None
        others = Cell("", tuple(each for each in cell.policies if each.label != best))
        return best_policy(others, self.metric).label if others.policies else None

    def _difference(self, cell: Cell, base: str, label: str) -> Difference:
        one, other = (cell.policy(each).values(self.metric).tolist() for each in (base, label))
        return paired_difference(self.metric, one, other, self.error)

    def _figures(self, cell: Cell, result: PolicyResult, best: str | None) -> Figures:
        half = math.nan
        if best is not None and not result.unstable:
            half = 0.0 if result.label == best else self._difference(cell, best, result.label).half_width
        names = (self.metric, "depth_mean", "batch_mean", "step_mean_ms", "acceptance_length")
        mean, depth, breadth, step_ms, length = (result.mean(name) for name in names)
        return Figures(mean, half, depth, breadth, step_ms, length, result.unstable)
