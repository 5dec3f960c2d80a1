"""SGLang: prompts have steps of their own, and every sequence is as deep as the deepest."""

from __future__ import annotations

from typing import Final

from sim.engine.sourced import EnginePreset, Sourced, Unless

_SCHEDULER: Final = "srt/managers/scheduler.py"
_BATCH: Final = "srt/managers/schedule_batch.py"
_WORKER: Final = "srt/speculative/eagle_worker_v2.py"
_SPEC: Final = "srt/arg_groups/speculative_hook.py"
_GRAPHS: Final = "srt/arg_groups/cuda_graph_hook.py"

CAPTURE_SIZES: Final = (
    *(4 * n for n in (*range(1, 9), *range(10, 33, 2), *range(40, 65, 4), *range(72, 257, 8))),
    *range(1280, 4097, 256),
    *range(4608, 8193, 512),
)
"""Captured sizes in tokens: decode batches of up to 256 sequences at the default depth 3, then prompts."""

SGLANG: Final = EnginePreset(
    engine="SGLang",
    version="0.5.23",
    about="prompts first, in chunks; whoever produced least is retracted; host work overlaps",
    switches={
        "draft_at_depth_zero": Sourced(
            True, f"{_WORKER}, forward_batch_generation: at 0 steps the draft KV is still kept warm"
        ),
        "draft_pass_over": Sourced(
            "scheduled", "srt/speculative/eagle_worker_common.py, prepare_for_draft_extend"
        ),
        "draft_for_finished": Sourced(
            True, f"{_WORKER}, forward_batch_generation: draft extend before the results are read"
        ),
        "draft_uniformly": Sourced(True, f"{_WORKER}: speculative_num_steps for the whole batch"),
        "draft_past_end": Sourced(True, f"{_WORKER}: steps do not mind what is left of max_new_tokens"),
        "lookahead": Sourced(
            True,
            "srt/mem_cache/allocation_sizing.py, get_alloc_reserve_per_decode (SGLang reserves twice "
            "as much)",
        ),
        "draft_slots": Sourced(False, "srt/managers/schedule_policy.py, PrefillAdder: prompts alone"),
        "null_block": Sourced(
            False, "srt/mem_cache/memory_pool.py: the padding page comes on top of the pool's size"
        ),
        "dummy_drafts": Sourced(
            False,
            "srt/mem_cache/allocation_sizing.py, get_req_to_token_extra_context_len: rows have room "
            "beyond the context",
        ),
        "pad_new_decodes": Sourced(False, f"{_SCHEDULER}: a prompt of one token is a prefill, too"),
        "pad_queries": Sourced(False, f"{_WORKER}: all verify rows are equally wide anyway"),
        "prefix_caching": Sourced(True, "srt/arg_groups/fields/memory.py, disable_radix_cache"),
        "drop_last_hit": Sourced(
            False,
            "nearest: EAGLE's bigram keys lose one token (srt/mem_cache/radix_cache.py), not a block",
        ),
        "capture_sizes": Sourced(
            CAPTURE_SIZES,
            f"{_GRAPHS}, generate_decode_cuda_graph_batch_sizes and generate_prefill_cuda_graph_batch_sizes",
        ),
        "prefill": Sourced(
            "first",
            f"{_SCHEDULER}, get_next_batch_to_run; srt/arg_groups/fields/schedule.py: "
            "enable_mixed_chunk is off",
        ),
        "mixed_under_speculation": Sourced(
            True,
            "srt/speculative/spec_info.py, supports_mixed_chunk: EAGLE, DFLASH and DSPARK keep it "
            "(each decode then takes one token)",
        ),
        "chunked_prefill": Sourced(
            True, "srt/arg_groups/memory_hook.py, handle_gpu_memory_settings: chunked_prefill_size"
        ),
        "reserved_output": Sourced(
            0.7,
            "srt/managers/scheduler_components/new_token_ratio_tracker.py: what it begins with; it falls "
            "to 0.098 within 600 decode steps and rises after a retraction; with ignore_eos it is 1",
        ),
        "preemption": Sourced("recompute", f"{_BATCH}, retract_decode"),
        "victim": Sourced("fewest_output", f"{_BATCH}, _get_decode_retraction_order"),
        "requeue": Sourced("back", f"{_SCHEDULER}, _add_request_to_queue: waiting_queue.append"),
        "graphs": Sourced(
            "full_and_piecewise",
            "srt/model_executor/cuda_graph_config.py: decode full, prefill breakable on CUDA",
        ),
        "varying_depth_graphs": Sourced(
            "kept", "srt/speculative/adaptive_runtime_state.py: graphs for every candidate of the steps"
        ),
        "capture_multiples": Sourced(
            True, "srt/model_executor/runner/decode_cuda_graph_runner.py: batch sizes of full width"
        ),
        "overlap_host": Sourced(True, "srt/arg_groups/fields/schedule.py: disable_overlap_schedule is off"),
        "async_scheduling": Sourced(
            True, f"{_SCHEDULER}, event_loop_overlap: the next batch is made before results are read"
        ),
        "stale_decisions": Sourced(
            1, f"{_SCHEDULER}, event_loop_overlap: results are read while the next step runs"
        ),
        "pad_depths": Sourced(True, f"{_WORKER}: speculative_num_draft_tokens per request"),
        "drafter_limit_stops_all": Sourced(False, "not found; as vllm_v1"),
        "checkpoint_states": Sourced(True, "srt/mem_cache/memory_pool.py: intermediate_ssm per draft"),
    },
    limits={
        "max_num_seqs": Sourced(
            2048, "srt/mem_cache/kv_cache_configurator.py, resolve_max_num_reqs: 2048 to 4096 by memory"
        ),
        "max_num_seqs_drafting": Sourced(
            Unless("max_num_seqs", 48), f"{_SPEC}, _handle_eagle_family: max_running_requests is reset to 48"
        ),
        "max_num_batched_tokens": Sourced(
            8192, "srt/arg_groups/memory_hook.py: chunked_prefill_size on 60 to 160 GiB of memory"
        ),
        "block_size": Sourced(
            16,
            "here: page_size is 1 (srt/arg_groups/overrides.py, _page_size_default); pages of 16 keep "
            "the simulated cache small and hold at most 15 tokens more per request",
        ),
    },
)
