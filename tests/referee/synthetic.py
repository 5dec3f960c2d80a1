"""vLLM's synthetic acceptance on the CPU: its Triton kernels have it, its CPU fall-backs assert.

Draft i of a row is accepted when its uniform draw lies below the conditional rate of
position i and the draft is a token that a drafter proposed (id above 0: padding is -1, and the
dummies of a drafter that did not run are 0, which no real target would accept), after vLLM 0.32's
``rejection_greedy_sample_kernel`` (vllm/v1/sample/rejection_sampler.py). Only greedy sampling.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

RowRates = Callable[[int], list[Any]]
"""Conditional rates of each of so many rows."""


def install(row_rates: RowRates) -> None:
    """Put the function in the place of vLLM's CPU fall-back, which knows no synthetic mode."""
    from vllm.utils import cpu_triton_utils

    plain = cpu_triton_utils._rejection_greedy_sample_kernel_impl

    def greedy(
        output_token_ids: Any,
        cu_num_draft_tokens: Any,
        draft_token_ids: Any,
        target_argmax: Any,
        bonus_token_ids: Any,
        is_greedy: Any,
        max_spec_len: Any,
        uniform_probs: Any = None,
        synthetic_conditional_rates: Any = None,
        SYNTHETIC_MODE: bool = False,  # noqa: N803 - vLLM's name
    ) -> None:
        given = (output_token_ids, cu_num_draft_tokens, draft_token_ids, target_argmax, bonus_token_ids)
        if not SYNTHETIC_MODE:
            plain(*given, is_greedy, max_spec_len)
            return
        _accept(*(t.numpy() for t in given), uniform_probs.numpy(), row_rates(len(cu_num_draft_tokens)))

    cpu_triton_utils._rejection_greedy_sample_kernel_impl = greedy


def _accept(output: Any, ends: Any, drafts: Any, argmax: Any, bonus: Any, draws: Any, rates: Any) -> None:
    starts = [0, *ends[:-1].tolist()]
    for i, (start, end) in enumerate(zip(starts, ends.tolist(), strict=True)):
        chance = rates[i]
        for place, at in enumerate(range(start, end)):
            if draws[at] < chance[place] and drafts[at] > 0:
                output[i, place] = drafts[at]
                continue
            output[i, place] = argmax[at]
            break
        else:
            output[i, end - start] = bonus.reshape(-1)[i]
