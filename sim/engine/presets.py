"""Presets: the switches as one engine sets them.

Sources are read in vLLM 0.32 (V1 engine) unless said otherwise.
"""

from __future__ import annotations

from typing import Final, Literal

from sim.engine.behaviour import Behaviour

PresetName = Literal["ideal", "vllm_v1"]

VLLM_CAPTURE_SIZES: Final = (1, 2, 4, *range(8, 256, 8), *range(256, 513, 16))
"""Default captured CUDA-graph sizes in tokens (vllm/config/vllm.py, _set_cudagraph_sizes)."""


PRESETS: Final[dict[PresetName, Behaviour]] = {
    "ideal": Behaviour(
        draft_at_depth_zero=False,
        draft_pass_over="emitted",
        draft_for_finished=False,
        draft_uniformly=False,
        draft_past_end=False,
        lookahead=False,
        draft_slots=False,
        null_block=False,
        dummy_drafts=False,
        pad_new_decodes=False,
        pad_queries=False,
        prefix_caching=False,
        drop_last_hit=False,
        capture_sizes=(),
        graphs="full",
        varying_depth_graphs="kept",
        capture_multiples=False,
        overlap_host=False,
        stale_decisions=0,
        pad_depths=False,
        drafter_limit_stops_all=False,
        checkpoint_states=False,
        prefill="mixed",
        mixed_under_speculation=True,
        chunked_prefill=True,
        reserved_output=0.0,
        preemption="recompute",
        victim="last",
        requeue="front",
    ),
    "vllm_v1": Behaviour(
        draft_at_depth_zero=True,
        draft_pass_over="scheduled",
        draft_for_finished=True,
        draft_uniformly=True,
        draft_past_end=True,
        lookahead=True,
        draft_slots=True,
        null_block=True,
        dummy_drafts=True,
        pad_new_decodes=True,
        # vllm/v1/attention/backends/flash_attn.py: query_start_loc, rows of any width.
        pad_queries=False,
        # On in vLLM. Off here, since it changes runs without shared prefixes, too: what was preempted hits.
        prefix_caching=False,
        drop_last_hit=True,
        capture_sizes=VLLM_CAPTURE_SIZES,
        # vLLM's default is full_and_piecewise, piecewise at varying depth; both cost the same where a profile
        # has no piecewise_extra.
        graphs="full",
        varying_depth_graphs="kept",
        # On in vLLM with full graphs. Off here: it pads every step of the recorded comparisons anew.
        capture_multiples=False,
        # On by default in vLLM; composed profiles state the host time that is left to see.
        overlap_host=False,
        stale_decisions=0,
        pad_depths=False,
        drafter_limit_stops_all=False,
        checkpoint_states=False,
        prefill="mixed",
        mixed_under_speculation=True,
        chunked_prefill=True,
        reserved_output=0.0,
        preemption="recompute",
        victim="last",
        requeue="front",
    ),
}
