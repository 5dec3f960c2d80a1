"""``vllm_adaptive``: vLLM's adaptive verification, a verification budget from costs profiled at start.

Rule (vllm/v1/worker/gpu/spec_decode/adaptive_verification.py at 057929c, PR #47808; engine key
``enable_adaptive_verification``): the whole block is drafted in every step, and of all drafts of the
batch the B likeliest are verified,

    B = argmax over all B of (n + sum of the B largest survivals) / (draft_ms[n] + verify_ms[T + B])

with n the sampling sequences and T the step's tokens that are no drafts. B is reckoned with the
survivals of the step before (1 for new requests), whose copy has arrived by then; which drafts are
verified, with those of this step. Lossless for that reason, and because the confidences (a head's, or
fitted to the margin of the drafter's two best tokens) are known before the token is drawn.

Costs are profiled at start: at every captured graph size, then at 1.5, 2, 4, ... times the largest up to
the largest step, with one sequence per token up to ``profile_sequences``, each over ``profile_context``
tokens. Both curves are forced not to fall; between captured sizes they are stairs, beyond them straight
lines. Where KV reads are dear the synthetic context misleads: a draft adds a token to the pass, but no KV
to read, so up to ``profile_sequences`` tokens it looks dearer than it is, and beyond, beside a full batch
of long contexts, cheaper (vLLM's setting: VLLM_ADAPTIVE_VERIFICATION_PROFILE_CONTEXT_LEN).

**Granularity**: per token; every step. **Inputs**: confidences, cost tables, prompt tokens of the next
step.

Departures: the verify curve is target pass, sampling and host, where vLLM times the forward pass alone;
KV reads are charged in full, while vLLM's dummy requests share one block (what that measures we do not
know); without captured graphs every size counts as profiled; the cap on logits per sampling chunk is left
out.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from sim.cost.step_cost import StepCost
from sim.policies.base import Batch, Claims, Depths, Int64, PolicyDefaults
from sim.policies.budget import Float, Past, expected_tokens, largest_step, profiled_ns, spend, survival
from sim.policies.config import Bounds, PolicyConfig


class VllmAdaptive(PolicyDefaults):
    """Full drafts, of which the batch verifies the likeliest; how many is settled a step behind."""

    wants_confidence = True
    wants_progress = True

    def __init__(self, max_depth: int, profile_context: int, profile_sequences: int) -> None:
        self.max_depth = max_depth
        self.profile_context, self.profile_sequences = profile_context, profile_sequences
        self.past = Past(max_depth, lag=1)
        self._cost: StepCost | None = None
        self._draft_ns = self._verify_ns = np.zeros(0)

    def draft_depths(self, batch: Batch) -> Depths:
        """The whole block."""
        return self.max_depth

    def verify_depths(self, batch: Batch, depths: Depths, confidence: Claims) -> Depths:
        """The likeliest drafts within the budget."""
        if batch.sequences == 0 or self.max_depth == 0:
            return 0
        survive = survival(confidence[:, : self.max_depth])
        past = self.past.exchange(batch.request, survive, depths)
        return spend(survive, self._budget(batch, expected_tokens(past)))

    def _budget(self, batch: Batch, tokens: Float) -> int:
        """Drafts with the best ratio of expected tokens to profiled time."""
        self._profile(batch.cost)
        n = batch.sequences
        at = n + batch.prompt_tokens_ahead + np.arange(len(tokens))
        draft_ns = self._draft_ns[min(n, self.profile_sequences)]
        verify_ns = self._verify_ns.take(at, mode="clip")
        return int((tokens / (draft_ns + verify_ns)).argmax())

    def _profile(self, cost: StepCost) -> None:
        """Fill both tables, once for each engine."""
        if cost is self._cost:
            return
        most, graph = largest_step(cost), cost.largest_graph
        sizes = sizes_to_profile(cost, most)
        sequences = np.minimum(sizes, self.profile_sequences)
        verify_ns = profiled_ns(cost, sizes, sequences, self.profile_context)
        self._verify_ns = stairs(sizes, verify_ns, most, graph)
        counts = np.unique(sequences)
        self._draft_ns = stairs(counts, self._drafting_ns(cost, counts), self.profile_sequences, graph)
        self._cost = cost

    def _drafting_ns(self, cost: StepCost, counts: Int64) -> Float:
        """Drafter's passes over a whole block, by the number of sequences."""
        return np.array([self._block_ns(cost, n) for n in counts.tolist()])

    def _block_ns(self, cost: StepCost, n: int) -> float:
        context = float(n * self.profile_context)
        return float(cost.first_ns(0, n, n, context) + cost.further_ns(n, self.max_depth, context))


def sizes_to_profile(cost: StepCost, most: int) -> Int64:
    """Captured sizes up to ``most`` tokens, then 1.5, 2, 4, ... times the largest; else all sizes."""
    limit = min(cost.largest_graph, most)
    if not limit:
        return np.arange(1, most + 1)
    tail, size = [limit + limit // 2], limit
    while size < most:
        size *= 2
        tail.append(size)
    return np.unique(np.minimum([*cost.padded_array[1 : limit + 1].tolist(), *tail], most))


def stairs(sizes: Int64, ns: Float, most: int, limit: int) -> Float:
    """Times of 0..``most``: the next profiled size's up to ``limit``, straight lines beyond it.

    Never falling; nothing is interpolated across the limit. Without a limit all are stairs.
    """
    never_falling, at = np.maximum.accumulate(ns), np.arange(most + 1)
    table: Float = never_falling[np.minimum(np.searchsorted(sizes, at), len(sizes) - 1)]
    beyond = sizes > limit
    if limit and beyond.any():
        line = np.interp(at, sizes[beyond], never_falling[beyond])
        table = np.where(at > limit, line, table)
    return table


class VllmAdaptiveConfig(PolicyConfig):
    """Verification budget from profiled costs and last step's confidences (vLLM)."""

    policy: Literal["vllm_adaptive"]
    k_max: int = Field(default=7, ge=1, le=64, description="drafts proposed for every sequence")
    profile_context: int = Field(
        default=8192, ge=0, description="KV tokens of a sequence when costs are profiled"
    )
    profile_sequences: int = Field(
        default=256, ge=1, le=65536, description="most sequences of a profiled step (max_num_seqs)"
    )

    def build(self, bounds: Bounds) -> VllmAdaptive:
        """The policy, its depth cut to what the engine allows."""
        depth = min(self.k_max, bounds.max_depth)
        return VllmAdaptive(depth, self.profile_context, self.profile_sequences)

    @property
    def depth(self) -> int:
        """The whole block."""
        return self.k_max
