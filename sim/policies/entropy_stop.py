"""``entropy_stop``: stop drafting where the bound on acceptance falls below a threshold that adapts.

Rule of AdaEDL (arXiv 2410.18351; SVIP, arXiv 2411.18462, is the same idea): the drafter's entropy H
bounds the acceptance of its token from below by ``1 - sqrt(gamma H)``; drafting stops when the bound
is below ``lambda``. The token that fell below is kept and verified. ``lambda`` follows a target
acceptance: after each round the request's mean acceptance (weight ``1 - beta_1`` for the new one) is
compared with the target, and ``lambda`` moves by ``(1 - beta_2) epsilon``: up below the target, down
above it, not at all above it when the draft had its full length. Each request has its own ``lambda``.
The load plays no part.

**Granularity**: per token. **Inputs**: confidences, acceptance of the request's own rounds.

Departures: entropies are not simulated, so the drafter's claim stands for the bound and ``gamma``
disappears; a real bound would lie below a calibrated claim. The paper's text could not be read: the
stopping rule is from its abstract and others' accounts of it; the adaptation and the last token's fate
are those of Draft & Verify (arXiv 2309.08168; code dilab-zju/self-speculative-decoding, decoding.py);
that AdaEDL follows it is from memory of the paper. The DSDE authors' reimplementation of AdaEDL has the
same form and constants, but lowers ``lambda`` only after rounds that accepted a draft of full length.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from sim.policies.base import Batch, Claims, Depths, Outcome, PolicyDefaults
from sim.policies.config import Bounds, PolicyConfig
from sim.policies.memory import PerRequest
from sim.policies.stopping import through_first


class EntropyStop(PolicyDefaults):
    """Drafts until a claim falls below the request's own threshold."""

    wants_confidence = True
    wants_outcomes = True

    def __init__(
        self, k_max: int, target: float, start: float, beta_1: float, beta_2: float, epsilon: float
    ) -> None:
        self.k_max, self.target, self.beta_1 = k_max, target, beta_1
        self.move = (1 - beta_2) * epsilon
        self.threshold = PerRequest(start)
        self.acceptance = PerRequest(0.0)

    def draft_depths(self, batch: Batch) -> Depths:
        """As deep as allowed."""
        return self.k_max

    def stop_depths(self, batch: Batch, depths: Depths, confidence: Claims) -> Depths:
        """Up to and with the first draft below the threshold."""
        return through_first(confidence < self.threshold.of(batch.request)[:, None], depths)

    def observe(self, outcome: Outcome) -> None:
        """Move the thresholds of the requests that verified drafts."""
        tried = outcome.drafted > 0
        request, drafted = outcome.request[tried], outcome.drafted[tried]
        newest = outcome.accepted[tried] / drafted
        mean = self.beta_1 * self.acceptance.of(request) + (1 - self.beta_1) * newest
        self.acceptance.put(request, mean)
        above = np.where(drafted < self.k_max, -self.move, 0.0)
        moved = self.threshold.of(request) + np.where(mean < self.target, self.move, above)
        self.threshold.put(request, moved)


class EntropyStopConfig(PolicyConfig):
    """Stop drafting at a bound on acceptance below an adaptive threshold (AdaEDL, SVIP)."""

    policy: Literal["entropy_stop"]
    k_max: int = Field(default=7, ge=1, le=64, description="longest draft")
    target: float = Field(default=0.9, gt=0, lt=1, description="accepted / drafted to aim at (alpha)")
    start: float = Field(default=0.5, ge=0, le=1, description="threshold of a new request (lambda)")
    beta_1: float = Field(default=0.5, ge=0, lt=1, description="weight of the past in the mean acceptance")
    beta_2: float = Field(default=0.9, ge=0, lt=1, description="weight of the past in the threshold")
    epsilon: float = Field(default=0.01, gt=0, le=1, description="step of the threshold before smoothing")

    def build(self, bounds: Bounds) -> EntropyStop:
        """The policy, its depth cut to what the engine allows."""
        k_max = min(self.k_max, bounds.max_depth)
        return EntropyStop(k_max, self.target, self.start, self.beta_1, self.beta_2, self.epsilon)

    @property
    def depth(self) -> int:
        """The longest draft."""
        return self.k_max
