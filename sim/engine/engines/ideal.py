"""An engine without habits: it computes what the policy asked for, and nothing else."""

from __future__ import annotations

from typing import Any, Final

from sim.engine.engines.vllm_v1 import VLLM_V1
from sim.engine.sourced import EnginePreset, Sourced

_VALUES: Final[dict[str, Any]] = {
    "draft_at_depth_zero": False,
    "draft_pass_over": "emitted",
    "draft_for_finished": False,
    "draft_uniformly": False,
    "draft_past_end": False,
    "lookahead": False,
    "draft_slots": False,
    "null_block": False,
    "dummy_drafts": False,
    "pad_new_decodes": False,
    "pad_queries": False,
    "prefix_caching": False,
    "drop_last_hit": False,
    "capture_sizes": (),
    "prefill": "mixed",
    "mixed_under_speculation": True,
    "chunked_prefill": True,
    "reserved_output": 0.0,
    "preemption": "recompute",
    "victim": "last",
    "requeue": "front",
    "graphs": "full",
    "varying_depth_graphs": "kept",
    "capture_multiples": False,
    "overlap_host": False,
    "async_scheduling": False,
    "stale_decisions": 0,
    "pad_depths": False,
    "drafter_limit_stops_all": False,
    "checkpoint_states": False,
}

IDEAL: Final = EnginePreset(
    engine="no engine",
    version="",
    about="an engine without bad habits, to measure others by",
    switches={name: Sourced(value, "by definition") for name, value in _VALUES.items()},
    limits={
        name: Sourced(each.value, "as vllm_v1, to compare with it") for name, each in VLLM_V1.limits.items()
    },
)
