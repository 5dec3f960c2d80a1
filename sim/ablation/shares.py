"""What each mechanism is worth: paired differences over seeds, and what they leave unexplained.

A mechanism's difference is that of the engine as it stands from the same engine with this one mechanism
as in the reference. The mechanisms' differences need not add up to that of all together: the rest is what
they do to each other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from sim.ablation.variants import AS_IT_STANDS, TOGETHER, Change
from sim.errors import InputError
from sim.results.compare import Difference, PolicyResult, paired_difference
from sim.results.metrics import Metrics
from sim.results.names import METRICS

SHOWN: Final = ("output_tokens_per_s", "tpot_mean_ms", "ttft_mean_ms", "ttft_p99_ms")
"""Metrics that tables and ``ablation.json`` hold; a share may be asked for any other."""


@dataclass(frozen=True)
class Share:
    """One mechanism under one policy in one metric.

    ``difference`` is as it stands against without it: ``worse`` says that the mechanism costs. It is
    ``None`` where one of the two is unstable. ``part`` is the share of the difference of all together,
    NaN where that is no difference.
    """

    switch: str
    difference: Difference | None
    part: float


@dataclass(frozen=True)
class Shares:
    """All mechanisms under one policy in one metric: each alone, all together, and the rest.

    ``rest`` is what all together make beyond the sum of each alone.
    """

    metric: str
    together: Difference | None
    alone: tuple[Share, ...]
    rest: Share


@dataclass(frozen=True)
class PolicyAblation:
    """One policy at one load: its runs by mechanism, one per seed, in the order of the seeds.

    ``preset`` is that of the engine that was taken apart.
    """

    load: str
    policy: str
    preset: str
    changes: tuple[Change, ...]
    runs: Mapping[str, tuple[Metrics, ...]]
    error: float = 0.0

    def values(self, variant: str, metric: str) -> list[float]:
        """One metric per seed; NaN where the run was unstable."""
        if metric not in METRICS:
            raise InputError(f"unknown metric {metric!r}; known are {', '.join(METRICS)}")
        found: list[float] = self._result(variant).values(metric).tolist()
        return found

    def unstable(self, variant: str) -> bool:
        """Whether a variant's backlog grew, so that it has no mean."""
        return self._result(variant).unstable

    def shares(self, metric: str) -> Shares:
        """What each mechanism is worth in one metric."""
        names = [change.switch for change in self.changes]
        whole = self._against(self._whole, metric) if names else None
        alone = [self._against(name, metric) for name in names]
        total = whole.mean if whole is not None and whole.verdict != "no difference" else math.nan
        shares = tuple(
            Share(name, found, _part(found, total)) for name, found in zip(names, alone, strict=True)
        )
        rest = self._rest(names, metric) if names else None
        return Shares(metric, whole, shares, Share("rest", rest, _part(rest, total)))

    @property
    def _whole(self) -> str:
        """The variant with all changes; of one change there is no other."""
        return TOGETHER if TOGETHER in self.runs else self.changes[0].switch

    def _result(self, variant: str) -> PolicyResult:
        return PolicyResult(self.policy, self.runs[variant])

    def _against(self, variant: str, metric: str) -> Difference | None:
        if self.unstable(AS_IT_STANDS) or self.unstable(variant):
            return None
        return paired_difference(
            metric, self.values(variant, metric), self.values(AS_IT_STANDS, metric), self.error
        )

    def _rest(self, names: Sequence[str], metric: str) -> Difference | None:
        """What all changes together make beyond the sum of each alone, within each seed."""
        if any(self.unstable(variant) for variant in self.runs):
            return None
        stands = np.array(self.values(AS_IT_STANDS, metric))
        whole = np.array(self.values(self._whole, metric))
        alone = sum(stands - np.array(self.values(name, metric)) for name in names)
        rest = (stands - whole) - alone
        return paired_difference(metric, whole.tolist(), (whole + rest).tolist(), self.error)


@dataclass(frozen=True)
class Ablation:
    """A scenario's engine taken apart: one entry per load and policy.

    ``against`` is the reference, ``error`` the relative error of the step times, within which a difference
    counts as none.
    """

    scenario: str
    against: str
    seeds: tuple[int, ...]
    error: float
    entries: tuple[PolicyAblation, ...]

    def entry(self, policy: str | None = None, load: str | None = None) -> PolicyAblation:
        """One policy at one load, the first without names; raises ``InputError`` naming those there are."""
        for each in self.entries:
            if policy in (None, each.policy) and load in (None, each.load):
                return each
        known = ", ".join(f"{each.policy} at {each.load}" for each in self.entries)
        raise InputError(f"there is no {policy or 'policy'} at {load or 'any load'}; there are {known}")


def _part(found: Difference | None, total: float) -> float:
    """A difference's share of the whole; NaN without either."""
    return math.nan if found is None or not total else found.mean / total
