"""vLLM's V0 engine: prompts first, batch expansion, no drafter in steps without drafts."""

from __future__ import annotations

from typing import Final

from sim.engine.sourced import AtLeast, EnginePreset, Sourced

_SCHEDULER: Final = "vllm/core/scheduler.py"
_WORKER: Final = "vllm/spec_decode/spec_decode_worker.py"
_TOP1: Final = "vllm/spec_decode/top1_proposer.py"
_ARGS: Final = "vllm/engine/arg_utils.py"

CAPTURE_SIZES: Final = (1, 2, 4, *range(8, 257, 8))
"""Captured batch sizes up to 256 sequences; under batch expansion every draft is a row of its own."""

VLLM_V0: Final = EnginePreset(
    engine="vLLM, V0 engine",
    version="0.8.5",
    about="vLLM before its rewrite: prompts first and whole, drafter off where speculation is off",
    switches={
        "draft_at_depth_zero": Sourced(
            False, f"{_WORKER}, _run_no_spec(skip_proposer=disable_all_speculation)"
        ),
        "draft_pass_over": Sourced(
            "emitted",
            "nearest: one or two tokens per sequence, vllm/spec_decode/multi_step_worker.py, "
            "_expand_execute_model_request",
        ),
        "draft_for_finished": Sourced(
            False, f"{_WORKER}, _run_speculative_decoding_step: a step drafts first, for whom it verifies"
        ),
        "draft_uniformly": Sourced(True, f"{_TOP1}: proposals have length 0 or k"),
        "draft_past_end": Sourced(True, f"{_TOP1}, _split_by_proposal_len: max_model_len is the only limit"),
        "lookahead": Sourced(True, f"{_SCHEDULER}, _get_num_lookahead_slots, for decodes"),
        "draft_slots": Sourced(False, f"{_SCHEDULER}: a decode takes one token of the budget"),
        "null_block": Sourced(False, "vllm/core/block/naive_block.py: every block is handed out"),
        "dummy_drafts": Sourced(False, f"{_TOP1}: sequences near the limit are not drafted for"),
        "pad_new_decodes": Sourced(False, f"{_SCHEDULER}, _schedule_prefills"),
        "pad_queries": Sourced(
            False,
            "vllm/spec_decode/batch_expansion.py: rows of one query each (their KV reads are not charged)",
        ),
        "prefix_caching": Sourced(False, f"{_ARGS}, _set_default_args_v0: off unless it is asked for"),
        "drop_last_hit": Sourced(False, f"{_SCHEDULER}, _get_num_new_uncached_and_cached_tokens"),
        "capture_sizes": Sourced(CAPTURE_SIZES, "vllm/config.py, _set_cudagraph_sizes"),
        "prefill": Sourced(
            "first", f"{_SCHEDULER}, _schedule_default: no decodes where prefills are scheduled"
        ),
        "mixed_under_speculation": Sourced(
            True, f"{_WORKER}, _run_speculative_decoding_step: prefills may ride along"
        ),
        "chunked_prefill": Sourced(
            False, f"{_ARGS}, _set_default_args_v0: with speculation never unless it is asked for"
        ),
        "reserved_output": Sourced(
            0.0,
            "vllm/core/block_manager.py, can_allocate: the prompt's blocks (and 1 % of all, which is not "
            "modelled)",
        ),
        "preemption": Sourced("recompute", f"{_SCHEDULER}, _preempt: swapping only for beams"),
        "victim": Sourced("last", f"{_SCHEDULER}, _schedule_running: running_queue.pop()"),
        "requeue": Sourced("front", f"{_SCHEDULER}, _schedule_default: waiting.extendleft(preempted)"),
        "graphs": Sourced(
            "full_decode_only", "vllm/worker/model_runner.py, _use_captured_graph: decode_only"
        ),
        "varying_depth_graphs": Sourced(
            "kept", "vllm/spec_decode/batch_expansion.py: graphs are by rows, whatever the depth"
        ),
        "capture_multiples": Sourced(False, "vllm/config.py, _set_cudagraph_sizes"),
        "overlap_host": Sourced(
            False, "vllm/config.py, verify_async_output_proc: off with a speculative_config"
        ),
        "async_scheduling": Sourced(
            False, "vllm/config.py, verify_async_output_proc: off with a speculative_config"
        ),
        "stale_decisions": Sourced(0, f"{_WORKER}, _should_disable_all_speculation: this step's queue"),
        "pad_depths": Sourced(False, f"{_WORKER}, split_batch_by_proposal_len: 0 or k drafts each"),
        "drafter_limit_stops_all": Sourced(False, f"{_TOP1}, _split_by_proposal_len: each for itself"),
        "checkpoint_states": Sourced(False, "not found; as vllm_v1"),
    },
    limits={
        "max_num_seqs": Sourced(256, f"{_ARGS}, _set_default_args_v0"),
        "max_num_batched_tokens": Sourced(
            AtLeast("max_model_len", 2048), "vllm/config.py, SchedulerConfig: whole prompts must fit"
        ),
        "block_size": Sourced(16, "vllm/platforms/cuda.py, check_and_update_config"),
    },
)
