"""``dcut``: the likeliest share of a batch's drafts, fixed or the best of four.

Rule of D-Cut (Tencent AngelSlim; arXiv 2607.14647, which we could not read; the authors' page
docs/source/_extra/dcut.html at 67394ce, vLLM PR #47131, SGLang srt/speculative/dflash_dcut.py): drafts are
ranked over the batch by the product of their confidences; the first ``ceil(ratio * n * k)`` are verified.
With ``ratio: auto`` the ratio is, in every step, that of 0.25, 0.5, 0.75 and 1 with the most expected
drafts (bonus tokens left out, as in both engines) per profiled time of drafting and verifying.

**Granularity**: per token; every step. **Inputs**: confidences; for ``auto`` the cost tables.

**Not lossless** with ``ratio: auto``: the ratio is chosen by all confidences of the drafts at hand, so a
draft may be left out for what it leads to, as in DSpark's counterexample (arXiv 2607.05147, appendix A).
It is lossless under greedy drafting, and with a parallel drafter whose confidences are all known before
any token is drawn. A fixed ratio is lossless; but the authors rank by the probability of the token drawn,
which under sampling is not (see ``tetris``). SGLang prunes only batches that are all greedy.

Departures: a ratio counts drafts as on the authors' page; in the two engines it counts verified tokens,
bonus tokens included, so ratio 0.5 at k = 7 keeps 3 drafts of 7. A third engine never drops a first draft
(the crate ``met``, after the same paper): ``keep_first``. Costs are profiled at ``profile_context`` tokens
per sequence and the batch's own size.
"""

from __future__ import annotations

from math import ceil
from typing import Annotated, Final, Literal

import numpy as np
from pydantic import Field

from sim.cost.step_cost import StepCost
from sim.policies.base import Batch, Claims, Depths, PolicyDefaults
from sim.policies.budget import Float, ranked, spend, survival
from sim.policies.config import Bounds, PolicyConfig

RATIOS: Final = (0.25, 0.5, 0.75, 1.0)
Ratio = Literal["auto"] | Annotated[float, Field(gt=0, le=1)]


class DCut(PolicyDefaults):
    """The likeliest share of what was drafted."""

    wants_confidence = True

    def __init__(self, max_depth: int, ratio: Ratio, keep_first: bool, profile_context: int) -> None:
        self.max_depth, self.ratio, self.profile_context = max_depth, ratio, profile_context
        self.least = int(keep_first)
        self._cost: StepCost | None = None
        self._known: dict[int, Float] = {}

    def draft_depths(self, batch: Batch) -> Depths:
        """The whole block."""
        return self.max_depth

    def verify_depths(self, batch: Batch, depths: Depths, confidence: Claims) -> Depths:
        """The likeliest drafts, up to the share."""
        if batch.sequences == 0 or self.max_depth == 0:
            return 0
        survive = survival(confidence[:, : self.max_depth])
        drafts = [ceil(ratio * batch.sequences * self.max_depth) for ratio in self._ratios]
        kept = drafts[0] if len(drafts) == 1 else self._best(batch, ranked(survive).cumsum(), drafts)
        return spend(survive, kept - self.least * batch.sequences, self.least)

    @property
    def _ratios(self) -> tuple[float, ...]:
        return RATIOS if self.ratio == "auto" else (self.ratio,)

    def _best(
        self, batch: Batch, expected: np.ndarray[tuple[int], np.dtype[np.floating]], drafts: list[int]
    ) -> int:
        """The number of drafts with the most of them expected to be accepted per profiled time."""
        at = np.array(drafts)
        return drafts[int((expected[at - 1] / self._round_ns(batch, at)).argmax())]

    def _round_ns(self, batch: Batch, drafts: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Float:
        """Drafting and verifying at each of ``drafts`` drafts in all."""
        cost, n = batch.cost, batch.sequences
        if cost is not self._cost:
            self._cost, self._known = cost, {}
        if n not in self._known:
            context = float(n * self.profile_context)
            drafting = cost.drafting_ns(n, n * self.max_depth, self.max_depth, context)
            self._known[n] = drafting + cost.target_ns(n + drafts, n, context)
        return self._known[n]


class DCutConfig(PolicyConfig):
    """Likeliest share of the batch's drafts, fixed or chosen by cost (D-Cut)."""

    policy: Literal["dcut"]
    k_max: int = Field(default=7, ge=1, le=64, description="drafts proposed for every sequence")
    ratio: Ratio = Field(default="auto", description="share of the drafts that is verified, or auto")
    keep_first: bool = Field(default=False, description="every sequence's first draft is verified")
    profile_context: int = Field(
        default=2048, ge=0, description="KV tokens of a sequence when costs are profiled (auto)"
    )

    def build(self, bounds: Bounds) -> DCut:
        """The policy, its depth cut to what the engine allows."""
        depth = min(self.k_max, bounds.max_depth)
        return DCut(depth, self.ratio, self.keep_first, self.profile_context)

    @property
    def depth(self) -> int:
        """The whole block."""
        return self.k_max
