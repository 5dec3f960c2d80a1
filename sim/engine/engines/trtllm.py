"""TensorRT-LLM with the PyTorch backend: nobody is admitted who might have to leave again."""

from __future__ import annotations

from typing import Final

from sim.engine.sourced import EnginePreset, Sourced

_ARGS: Final = "tensorrt_llm/llmapi/llm_args.py"
_SCHEDULER: Final = "tensorrt_llm/_torch/pyexecutor/scheduler/scheduler.py"
_DRAFTER: Final = "tensorrt_llm/_torch/speculative/drafter.py"

CAPTURE_SIZES: Final = tuple(4 * n for n in (1, 2, 4, *range(8, 129, 8)))
"""Captured batch sizes to 128 sequences with padding, in tokens at a draft length of 3."""

TRTLLM: Final = EnginePreset(
    engine="TensorRT-LLM, PyTorch backend",
    version="1.x (main, September 2026)",
    about="whole prompts beside decodes, answers reserved to their end, drafts padded to full length",
    switches={
        "draft_at_depth_zero": Sourced(
            False, f"{_DRAFTER}, should_use_spec_decode: past max_concurrency nothing is drafted"
        ),
        "draft_pass_over": Sourced("scheduled", "not found for the one-model drafters; as vllm_v1"),
        "draft_for_finished": Sourced(
            True, "docs/source/features/overlap-scheduler.md: stop criteria are checked one step later"
        ),
        "draft_uniformly": Sourced(
            True, "docs/source/features/speculative-decoding.md: max_draft_len tokens for every request"
        ),
        "draft_past_end": Sourced(
            True, "docs/source/features/speculative-decoding.md: max_draft_len tokens for every request"
        ),
        "lookahead": Sourced(
            True, f"{_DRAFTER}, pad_draft_tokens_for_cuda_graph: prepare_resources takes KV for the drafts"
        ),
        "draft_slots": Sourced(False, f"{_SCHEDULER}, PyMicroBatchScheduler: one token and its drafts each"),
        "null_block": Sourced(False, "not found; none"),
        "dummy_drafts": Sourced(False, "not found; none"),
        "pad_new_decodes": Sourced(False, f"{_SCHEDULER}, PyMicroBatchScheduler: prompts are not padded"),
        "pad_queries": Sourced(False, "not found; as vllm_v1"),
        "prefix_caching": Sourced(True, "docs/source/features/kvcache.md: enable_block_reuse is on"),
        "drop_last_hit": Sourced(False, "not found; none"),
        "capture_sizes": Sourced(
            CAPTURE_SIZES,
            f"nearest: {_ARGS}, _generate_cuda_graph_batch_sizes with enable_padding; without it, as by "
            "default, batches of other sizes than the captured ones run eagerly",
        ),
        "prefill": Sourced(
            "mixed", "docs/source/features/paged-attention-ifb-scheduler.md: in-flight batching"
        ),
        "mixed_under_speculation": Sourced(True, f"{_SCHEDULER}: no difference is made"),
        "chunked_prefill": Sourced(False, f"{_ARGS}: enable_chunked_prefill is off"),
        "reserved_output": Sourced(
            1.0,
            f"{_ARGS}, SchedulerConfig: GUARANTEED_NO_EVICT; "
            f"{_SCHEDULER}, get_remaining_blocks_to_completion",
        ),
        "preemption": Sourced("recompute", "GUARANTEED_NO_EVICT: never needed"),
        "victim": Sourced("last", "GUARANTEED_NO_EVICT: never needed"),
        "requeue": Sourced("front", "GUARANTEED_NO_EVICT: never needed"),
        "graphs": Sourced(
            "full_decode_only", f"{_SCHEDULER}, ScheduledRequests.can_run_cuda_graph: no prompts in the step"
        ),
        "varying_depth_graphs": Sourced(
            "kept", f"{_ARGS}, _merge_schedule_keys: graphs for draft_len_schedule"
        ),
        "capture_multiples": Sourced(
            True, "tensorrt_llm/_torch/pyexecutor/cuda_graph_runner.py: batch sizes of full width"
        ),
        "overlap_host": Sourced(True, f"{_ARGS}: disable_overlap_scheduler is off"),
        "async_scheduling": Sourced(
            True, "docs/source/features/overlap-scheduler.md: one extra decoding step"
        ),
        "stale_decisions": Sourced(1, "docs/source/features/overlap-scheduler.md: one extra decoding step"),
        "pad_depths": Sourced(True, f"{_DRAFTER}, pad_draft_tokens_for_cuda_graph"),
        "drafter_limit_stops_all": Sourced(False, "not found; as vllm_v1"),
        "checkpoint_states": Sourced(
            True, "tensorrt_llm/_torch/pyexecutor/mamba_cache_manager.py: SpeculativeState, one per draft"
        ),
    },
    limits={
        "max_num_seqs": Sourced(2048, f"{_ARGS}: max_batch_size"),
        "max_num_batched_tokens": Sourced(8192, f"{_ARGS}: max_num_tokens"),
        "block_size": Sourced(32, f"{_ARGS}, KvCacheConfig.tokens_per_block"),
    },
)
