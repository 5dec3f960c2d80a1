"""llama.cpp's server: a few slots that share one KV memory, and depths of their own for each."""

from __future__ import annotations

from typing import Final

from sim.engine.sourced import EnginePreset, Sourced

_SERVER: Final = "tools/server/server-context.cpp"
_SPEC: Final = "common/speculative.cpp"
_COMMON: Final = "common/common.h"

LLAMACPP: Final = EnginePreset(
    engine="llama.cpp, llama-server",
    version="commit 0c1e57098 (October 2026)",
    about="four slots, prompts beside decodes, drafts cut to what is wanted, no padding",
    switches={
        "draft_at_depth_zero": Sourced(
            True, f"{_SERVER}, decode: common_speculative_process runs the drafter over every batch"
        ),
        "draft_pass_over": Sourced("scheduled", f"{_SPEC}, process: the target's whole batch"),
        "draft_for_finished": Sourced(
            False, f"nearest: {_SERVER}: finished slots are in that pass, in no further one"
        ),
        "draft_uniformly": Sourced(False, f"{_SPEC}, draft: a slot leaves the loop at p_min or n_max"),
        "draft_past_end": Sourced(False, f"{_SERVER}, get_n_draft_max: n_remaining() - 1 at most"),
        "lookahead": Sourced(False, "src/llama-kv-cache.cpp: cells are found when a batch is decoded"),
        "draft_slots": Sourced(False, f"{_SERVER}, pre_decode: n_batch counts the target's tokens"),
        "null_block": Sourced(False, "src/llama-kv-cache.cpp: no cell is set aside"),
        "dummy_drafts": Sourced(False, f"{_SERVER}, get_n_draft_max: cut at the context's end"),
        "pad_new_decodes": Sourced(False, f"{_SERVER}, pre_decode"),
        "pad_queries": Sourced(False, f"{_SERVER}, handle_last_sampled_token: a slot's own drafts"),
        "prefix_caching": Sourced(
            False,
            f"here: a slot reuses its last prompt ({_COMMON}, cache_prompt), which slots do not share: not "
            "modelled",
        ),
        "drop_last_hit": Sourced(False, "not found; none"),
        "capture_sizes": Sourced(
            (), "ggml/src/ggml-cuda/ggml-cuda.cu: a graph is captured for the shape that comes twice"
        ),
        "prefill": Sourced("mixed", f"{_SERVER}, pre_decode: sampled and drafted tokens, then prompts"),
        "mixed_under_speculation": Sourced(True, f"{_SERVER}, pre_decode: no difference is made"),
        "chunked_prefill": Sourced(True, f"{_SERVER}, pre_decode: prompts fill what is left of n_batch"),
        "reserved_output": Sourced(
            1.0,
            f"here: llama.cpp preempts nobody; requests without memory fail ({_SERVER}, decode), "
            "here they wait",
        ),
        "preemption": Sourced("recompute", "here: reserved_output leaves nothing to preempt"),
        "victim": Sourced("last", "here: reserved_output leaves nothing to preempt"),
        "requeue": Sourced("front", "here: reserved_output leaves nothing to preempt"),
        "graphs": Sourced(
            "full_decode_only",
            "nearest: ggml/src/ggml-cuda/ggml-cuda.cu, ggml_backend_cuda_graph_compute: a shape that comes "
            "twice in a row runs in a graph; that its first two steps are eager is not modelled",
        ),
        "varying_depth_graphs": Sourced(
            "kept", "ggml/src/ggml-cuda/ggml-cuda.cu: nothing is captured for depths"
        ),
        "capture_multiples": Sourced(False, "ggml/src/ggml-cuda/ggml-cuda.cu: no sizes"),
        "overlap_host": Sourced(
            False, f"{_SERVER}, decode: llama_synchronize before the sampling of every batch with outputs"
        ),
        "async_scheduling": Sourced(False, f"{_SERVER}, update_slots: one batch after the other"),
        "stale_decisions": Sourced(0, f"{_SERVER}, pre_decode: drafts follow the sampled tokens"),
        "pad_depths": Sourced(False, f"{_SERVER}, handle_last_sampled_token: a slot's own drafts"),
        "drafter_limit_stops_all": Sourced(False, f"{_SERVER}, get_n_draft_max: each slot for itself"),
        "checkpoint_states": Sourced(True, "include/llama.h, n_rs_seq; common/common.h, need_n_rs_seq"),
    },
    limits={
        "max_num_seqs": Sourced(4, "tools/server/server.cpp: n_parallel = 4 where it is not set"),
        "max_num_batched_tokens": Sourced(2048, f"{_COMMON}: n_batch (computed in pieces of n_ubatch = 512)"),
        "block_size": Sourced(1, "src/llama-kv-cache.cpp: cells of one token"),
    },
)
