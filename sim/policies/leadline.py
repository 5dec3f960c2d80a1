"""``leadline``: every pass and every verified draft has to earn the time that it takes.

Our own rule, from first principles. In any one state of the batch the best that can be done for
throughput and for latency alike is to emit tokens as fast as possible; so time has a price, the
tokens per ns that the batch emits at its best, and

- drafts are verified, likeliest first, while the next step of the target pass's staircase of costs gives
  more tokens than its time is worth: at the batch's own context, on captured graph sizes, and beside the
  prompt tokens that the next step will compute, so that neither depth nor breadth is preferred;
- a sequential drafter goes on while some deeper level is expected to give more than its passes are worth,
  in proportion to how well this round's drafts survived so far;
- nothing is drafted where the best round without drafts is faster. What was paid already is never
  counted again. Changing between drafting and not is put off until the time lost by staying adds up to
  ``switch_cost`` (ski rental: never more than twice what the best change in hindsight would cost).

The price is the best ratio of expected tokens to time over all depths and survival thresholds; the
expectation is a fading histogram of the survivals of everything proposed, corrected by what became of
the drafts that were verified (``sim.policies.yields``). A request behind its TPOT limit counts
``urgency`` times.

**Granularity**: per token; every step. **Inputs**: confidences, cost tables, contexts, prompt tokens
still to be computed, outcomes, TPOT limits. **Lossless**: the price and the threshold are fixed before
the drafts are seen, so whether draft j is verified depends on confidences up to j alone (cf. DSpark,
arXiv 2607.05147, appendix A).
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from sim.policies.base import Batch, Claims, Depths, Int64, Outcome, PolicyDefaults
from sim.policies.budget import ranked, spend
from sim.policies.config import Bounds, PolicyConfig
from sim.policies.corners import Corners
from sim.policies.memory import PerRequest
from sim.policies.prices import Prices, fix_prices
from sim.policies.yields import Calibration, Float, Yields, sampled
from sim.units import DurationNs


class Leadline(PolicyDefaults):
    """Drafts and verifies what earns its time."""

    wants_confidence = True
    wants_outcomes = True
    wants_progress = True

    def __init__(
        self,
        max_depth: int,
        start: float = 0.7,
        memory: float = 128,
        explore_every: int = 100,
        switch_cost_ns: int = 0,
        urgency: float = 1.0,
    ) -> None:
        self.max_depth, self.explore_every = max_depth, explore_every
        self.switch_cost_ns, self.urgency = switch_cost_ns, urgency
        self.corners = Corners(max_depth)
        self.yields = Yields(max_depth, start, memory)
        self.calibration = Calibration(prior=20, memory=10_000)
        self.claims = PerRequest(0.0, max(max_depth, 1))
        self.prices: Prices | None = None
        self.drafting = True
        self.lost_ns = 0.0
        self.idle_steps = 0
        self._claimed: tuple[Int64, Claims] | None = None
        self._survive: Claims = np.zeros((0, max_depth), dtype=np.float32)

    # -- before drafting ---------------------------------------------------------------------

    def draft_depths(self, batch: Batch) -> Depths:
        """As deep as may be, or nothing; a drafter that is off is asked for one draft now and then."""
        if batch.sequences == 0 or self.max_depth == 0:
            return 0
        if self.prices is None or not self.prices.hold_for(batch, self.yields):
            self.prices = fix_prices(batch, self.corners, self.yields)
        self._switch(self.prices, batch.sequences)
        if self.drafting:
            self.idle_steps = 0
            return self.max_depth
        self.idle_steps += 1
        return int(self.explore_every > 0 and self.idle_steps % self.explore_every == 0)

    def _switch(self, prices: Prices, sequences: int) -> None:
        """Draft or not; a change waits until staying has cost as much as the change.

        What a step of staying costs is counted over one token per sequence, the least it emits.
        """
        better, worse = prices.plain, prices.drafted
        if not self.drafting:
            better, worse = worse, better
        if better <= worse:
            self.lost_ns = 0.0
            return
        self.lost_ns += sequences / worse - sequences / better
        if self.lost_ns >= self.switch_cost_ns:
            self.drafting, self.lost_ns = not self.drafting, 0.0

    # -- while drafting, and after it --------------------------------------------------------

    def stop_depths(self, batch: Batch, depths: Depths, confidence: Claims) -> Depths:
        """Go on level by level while some deeper one is worth its passes."""
        self._survive = np.cumprod(self.calibration.apply(confidence[:, : self.max_depth]), axis=1)
        most = int(np.max(depths, initial=0))
        if self.prices is None or not batch.cost.sequential or most < 2:
            return depths
        if batch.cost.habits.uniform and isinstance(depths, int):
            return self._deepest(self.prices, most)
        return np.minimum(depths, self._each_depth(batch, self.prices, most))

    def _deepest(self, prices: Prices, most: int) -> int:
        """Depth of all, where every pass runs for every sequence.

        What deeper levels give on average is scaled by how far this round's survivals are from theirs.
        """
        left = self._survive.sum(axis=0).tolist()
        for level in range(1, most):
            if left[level - 1] <= len(self._survive) * prices.levels[level - 1] * prices.needed[level]:
                return level
        return most

    def _each_depth(self, batch: Batch, prices: Prices, most: int) -> Int64:
        """Depth of each sequence, where passes run for those alone that go on."""
        n = batch.sequences
        depths, going = np.ones(n, dtype=np.int64), np.ones(n, dtype=np.bool_)
        every = self._pass_ns(batch, going)
        for level in range(1, most):
            usual, needed = max(prices.levels[level - 1], 1e-9), prices.needed[level]
            left = self._survive[:, level - 1] / usual
            going &= left > needed
            if float(left[going].sum()) <= n * needed * self._pass_ns(batch, going) / every:
                break
            depths += going
        return depths

    def _pass_ns(self, batch: Batch, going: NDArray[np.bool_]) -> float:
        """Time of a pass over the sequences that go on."""
        rows, read = int(going.sum()), float(batch.context_tokens[going].sum())
        return float(batch.cost.next.ns(rows, rows, rows, read, read))

    def verify_depths(self, batch: Batch, depths: Depths, confidence: Claims) -> Depths:
        """Verify what pays; remember what was claimed."""
        proposed = int(np.max(depths, initial=0))
        self._claimed = None
        if self.prices is None or batch.sequences == 0 or proposed == 0:
            return 0
        self.yields.learn(self._survive, proposed)
        self._claimed = batch.request.copy(), confidence[:, : self.max_depth]
        worth: NDArray[np.floating] = self._survive * (
            np.arange(self.max_depth) < np.reshape(depths, (-1, 1))
        )
        if self.urgency != 1:
            worth = worth * self._urgency(batch)[:, None]
        return spend(worth, self.prices.affordable(ranked(worth)))

    def _urgency(self, batch: Batch) -> Float:
        """Weight of a sequence's tokens: ``urgency`` while it is behind its TPOT limit."""
        assert batch.tpot_limit_ns is not None
        assert batch.since_first_ns is not None
        assert batch.output_tokens is not None
        due = batch.tpot_limit_ns * (batch.output_tokens - 1)
        return np.where((batch.tpot_limit_ns > 0) & (batch.since_first_ns > due), self.urgency, 1.0)

    def observe(self, outcome: Outcome) -> None:
        """Compare what was claimed for the drafts verified in this step with what became of them."""
        if outcome.drafted.any():
            some = sampled(len(outcome.request))
            claims = self.claims.of(outcome.request[some])
            self.calibration.learn(claims, outcome.drafted[some], outcome.accepted[some])
        if self._claimed is not None:
            self.claims.put(*self._claimed)
            self._claimed = None


class LeadlineConfig(PolicyConfig):
    """Every pass and every draft has to earn the time it takes (our own)."""

    policy: Literal["leadline"]
    k_max: int = Field(default=7, ge=1, le=64, description="deepest depth considered")
    start: float = Field(default=0.7, gt=0, lt=1, description="acceptance assumed before any outcome")
    memory: float = Field(default=128, ge=1, description="sequence-rounds over which yields fade")
    explore_every: int = Field(default=100, ge=0, description="steps off between probes; 0: never probe")
    switch_cost: DurationNs = Field(default=0, description="time that changing between on and off costs")
    urgency: float = Field(default=1.0, ge=1, description="weight of a request that is behind its TPOT limit")

    def build(self, bounds: Bounds) -> Leadline:
        """The policy, its depth cut to what the engine allows."""
        return Leadline(
            min(self.k_max, bounds.max_depth),
            self.start,
            self.memory,
            self.explore_every,
            self.switch_cost,
            self.urgency,
        )

    @property
    def depth(self) -> int:
        """The deepest depth considered."""
        return self.k_max
