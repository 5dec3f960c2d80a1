"""vLLM's V1 engine, and the same under a depth that follows the batch size.

A source that begins with ``here`` says why the preset differs from the engine's own default: the preset
is held to recordings of vLLM step by step, and to published runs, with these values.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from sim.engine.sourced import EnginePreset, Sourced

VERSION: Final = "0.32.0"
_RUNNER: Final = "vllm/v1/worker/gpu_model_runner.py"
_SCHEDULER: Final = "vllm/v1/core/sched/scheduler.py"
_CONFIG: Final = "vllm/config/vllm.py"

CAPTURE_SIZES: Final = (1, 2, 4, *range(8, 256, 8), *range(256, 513, 16))
"""Default captured CUDA-graph sizes in tokens (vllm/config/vllm.py, _set_cudagraph_sizes)."""

VLLM_V1: Final = EnginePreset(
    engine="vLLM, V1 engine",
    version=VERSION,
    about="vLLM's scheduler since 0.8, held to recordings of 0.32 step by step",
    switches={
        "draft_at_depth_zero": Sourced(
            True, f"{_RUNNER}, propose_draft_token_ids: the drafter runs whatever the depth"
        ),
        "draft_pass_over": Sourced(
            "scheduled",
            "vllm/v1/spec_decode/llm_base_proposer.py, propose: padded inputs, rejected tokens among them",
        ),
        "draft_for_finished": Sourced(
            True, f"{_RUNNER}, sample_tokens: drafts are proposed before the scheduler looks who is done"
        ),
        "draft_uniformly": Sourced(
            True, "vllm/v1/spec_decode/llm_base_proposer.py, propose: one loop over num_speculative_tokens"
        ),
        "draft_past_end": Sourced(True, f"{_SCHEDULER}: drafts are not cut to max_tokens"),
        "lookahead": Sourced(
            True, f"{_CONFIG}, num_lookahead_tokens; {_SCHEDULER}, allocate_slots(num_lookahead_tokens)"
        ),
        "draft_slots": Sourced(True, "vllm/config/speculative.py, max_num_new_slots_for_drafting"),
        "null_block": Sourced(True, "vllm/v1/core/block_pool.py, BlockPool.null_block"),
        "dummy_drafts": Sourced(
            True, f"{_RUNNER}, _input_fits_in_drafter: past the limit all draft tokens are zeros"
        ),
        "pad_new_decodes": Sourced(
            True, f"{_SCHEDULER}, schedule: new decode requests are padded to the uniform size"
        ),
        "pad_queries": Sourced(
            False, "vllm/v1/attention/backends/flash_attn.py: query_start_loc, rows of any width"
        ),
        "prefix_caching": Sourced(
            False,
            "here: on in vLLM (vllm/config/cache.py, enable_prefix_caching); off, since it changes runs "
            "without shared prefixes, too: what was preempted hits",
        ),
        "drop_last_hit": Sourced(
            True, "vllm/v1/core/single_type_kv_cache_manager.py, find_longest_cache_hit: drop_eagle_block"
        ),
        "capture_sizes": Sourced(CAPTURE_SIZES, f"{_CONFIG}, _set_cudagraph_sizes"),
        "prefill": Sourced("mixed", f"{_SCHEDULER}, schedule: running requests first, prompts beside them"),
        "mixed_under_speculation": Sourced(True, f"{_SCHEDULER}, schedule: no difference is made"),
        "chunked_prefill": Sourced(True, "vllm/config/scheduler.py, enable_chunked_prefill"),
        "reserved_output": Sourced(0.0, f"{_SCHEDULER}, schedule: admission by the prompt's blocks alone"),
        "preemption": Sourced("recompute", f"{_SCHEDULER}, _preempt_request"),
        "victim": Sourced("last", f"{_SCHEDULER}, schedule: self.running.pop()"),
        "requeue": Sourced("front", f"{_SCHEDULER}, _preempt_request: waiting.prepend_request"),
        "graphs": Sourced(
            "full",
            "here: vLLM's default is full_and_piecewise (vllm/config/compilation.py), which costs the same "
            "where a profile has no piecewise_extra",
        ),
        "varying_depth_graphs": Sourced(
            "kept",
            "here: vLLM overrides the mode to piecewise (preset vllm_v1_adaptive); both cost the same where "
            "a profile has no piecewise_extra",
        ),
        "capture_multiples": Sourced(
            False,
            "here: on in vLLM with full graphs (vllm/config/compilation.py, "
            "adjust_cudagraph_sizes_for_spec_decode); off, as in the recordings",
        ),
        "overlap_host": Sourced(
            False,
            f"here: on by default in vLLM ({_CONFIG}, async_scheduling); composed profiles state the host "
            "time that is left to see",
        ),
        "async_scheduling": Sourced(
            False,
            f"here: on by default since 0.14 ({_CONFIG}, async_scheduling); off, as in the recordings",
        ),
        "stale_decisions": Sourced(
            0, f"{_SCHEDULER}, schedule: the depth is looked up from this step's batch"
        ),
        "pad_depths": Sourced(False, f"{_SCHEDULER}: every request carries its own spec_token_ids"),
        "drafter_limit_stops_all": Sourced(
            False, f"here: {_RUNNER}, _input_fits_in_drafter stops all; dummy_drafts models it"
        ),
        "checkpoint_states": Sourced(
            False,
            "here: on in vLLM (vllm/v1/kv_cache_interface.py, MambaSpec.num_speculative_blocks); off, as in "
            "the recordings",
        ),
    },
    limits={
        "max_num_seqs": Sourced(
            256,
            "vllm/engine/arg_utils.py, get_batch_defaults, below 70 GiB and on A100; 1024 on H100 and larger",
        ),
        "max_num_batched_tokens": Sourced(
            8192, "vllm/engine/arg_utils.py, get_batch_defaults, OpenAI server on H100; 2048 below 70 GiB"
        ),
        "block_size": Sourced(16, "vllm/config/cache.py, block_size, on CUDA"),
    },
)

VLLM_V1_ADAPTIVE: Final = replace(
    VLLM_V1,
    engine="vLLM, V1 engine with num_speculative_tokens_per_batch_size",
    about="what vLLM becomes once its depth follows the batch size",
    switches={
        **VLLM_V1.switches,
        "graphs": Sourced(
            "piecewise", f"{_CONFIG}, _maybe_override_dynamic_sd_cudagraph_mode: PIECEWISE for the whole run"
        ),
        "varying_depth_graphs": Sourced("piecewise", f"{_CONFIG}, _maybe_override_dynamic_sd_cudagraph_mode"),
        "pad_new_decodes": Sourced(
            False, f"{_SCHEDULER}, schedule: admissions are padded only where dynamic_sd_lookup is None"
        ),
    },
)
