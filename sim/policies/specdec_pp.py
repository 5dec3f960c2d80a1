"""``specdec_pp``: stop drafting once a rejection among the drafts is likely.

Rule of SpecDec++ (arXiv 2405.19715, section 4; code Kaffaljidhmah2/SpecDec_pp at 9c52edc,
specdec_pp/hf_generation.py): after each draft the chance that at least one of those so far is
rejected is ``1 - c_1 c_2 ... c_i``, with ``c`` from a trained acceptance head; drafting stops when
it exceeds ``h``, and everything drafted is verified. A threshold is optimal in the paper's Markov
decision process, made for one sequence; the load plays no part.

**Granularity**: per token. **Inputs**: confidences, read as conditional acceptances.

Departures: here a draft's claim is known when it is drafted. The authors' head reads it from the
pass that takes the draft in, so their code has by then sampled one draft more, and verifies it too;
their least length of 2 is that extra draft. ``h`` and ``k_max`` are those of their example script
(specdec_pp/sample.py); their benchmarks run 0.3 and other thresholds.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from sim.policies.base import Batch, Claims, Depths, PolicyDefaults
from sim.policies.budget import survival
from sim.policies.config import Bounds, PolicyConfig
from sim.policies.stopping import through_first


class SpecDecPP(PolicyDefaults):
    """Drafts until the drafts so far survive together with less than 1 - ``h``."""

    wants_confidence = True

    def __init__(self, k_max: int, h: float) -> None:
        self.k_max, self.h = k_max, h

    def draft_depths(self, batch: Batch) -> Depths:
        """As deep as allowed."""
        return self.k_max

    def stop_depths(self, batch: Batch, depths: Depths, confidence: Claims) -> Depths:
        """Up to and with the draft that makes a rejection likelier than ``h``."""
        return through_first(1 - survival(confidence) > self.h, depths)


class SpecDecPPConfig(PolicyConfig):
    """Stop drafting when P(at least one rejection) exceeds h (SpecDec++)."""

    policy: Literal["specdec_pp"]
    k_max: int = Field(default=20, ge=1, le=64, description="longest draft")
    h: float = Field(default=0.7, ge=0, le=1, description="P(a rejection so far) at which drafting stops")

    def build(self, bounds: Bounds) -> SpecDecPP:
        """The policy, its depth cut to what the engine allows."""
        return SpecDecPP(min(self.k_max, bounds.max_depth), self.h)

    @property
    def depth(self) -> int:
        """The longest draft."""
        return self.k_max
