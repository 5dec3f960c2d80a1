"""What a serving engine does around the policy: limits, memory and named behaviours.

``preset`` chooses defaults for the behaviours; any of them may be set by itself, so that a report
can show what each one costs. Sources are read in vLLM 0.32 (V1 engine) unless said otherwise.
"""

from __future__ import annotations

from typing import Final, Literal

from pydantic import Field

from sim.units import Bytes, Config, DurationNs

PresetName = Literal["ideal", "vllm_v1"]

VLLM_CAPTURE_SIZES: Final = (1, 2, 4, *range(8, 256, 8), *range(256, 513, 16))
"""Default captured CUDA-graph sizes in tokens (vllm/config/vllm.py, _set_cudagraph_sizes)."""


class Behaviour(Config):
    """How the engine treats speculation; each field is one mechanism."""

    draft_at_depth_zero: bool = Field(
        description="a drafter that is loaded runs its first pass even at depth 0"
    )
    draft_pass_over: Literal["scheduled", "emitted"] = Field(
        description="tokens of the drafter's first pass: all of the step (rejected too) or those kept"
    )
    draft_for_finished: bool = Field(description="sequences that finish in the step are drafted for, too")
    draft_uniformly: bool = Field(description="the drafter runs to the largest depth for every sequence")
    draft_past_end: bool = Field(description="drafts may go past the output length (and are trimmed)")
    lookahead: bool = Field(
        description="KV slots for the largest depth are reserved for every running sequence"
    )
    draft_slots: bool = Field(
        description="drafters that need input slots cost step budget for every sequence"
    )
    null_block: bool = Field(description="one KV block is set aside and never used")
    dummy_drafts: bool = Field(
        description="near the context limit the drafter does not run, and all carry full-depth dummy drafts"
    )
    pad_new_decodes: bool = Field(
        description="at a fixed depth, admissions with one token to compute carry as many empty drafts"
    )
    pad_queries: bool = Field(description="attention's queries are padded to the largest depth of the step")
    prefix_caching: bool = Field(description="KV blocks are found again by the tokens they hold")
    drop_last_hit: bool = Field(
        description="drafters that read hidden states have the last cached block computed anew"
    )
    capture_sizes: tuple[int, ...] = Field(description="captured graph sizes in tokens; none: exact size")


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
    ),
}


class EngineConfig(Config):
    """The engine of one replica."""

    preset: PresetName = "vllm_v1"
    max_num_seqs: int = Field(default=256, ge=1, le=65536, description="sequences in one step")
    max_num_batched_tokens: int = Field(default=8192, ge=1, le=1 << 20, description="tokens in one step")
    max_model_len: int = Field(default=131072, ge=2, description="longest prompt + output")
    block_size: int = Field(default=16, ge=1, description="tokens per KV block")
    kv_blocks: int | None = Field(
        default=None, ge=2, description="KV blocks; default: from the device's memory"
    )
    kv_cache_memory: Bytes | None = Field(
        default=None, description="memory for KV blocks, as in 40GiB; default: what the weights leave"
    )
    gpu_memory_utilization: float = Field(default=0.9, gt=0, le=1)
    long_prefill_token_threshold: int = Field(
        default=0, ge=0, description="largest prefill chunk; 0: no limit"
    )
    sampling: Literal["greedy", "T=1"] | None = Field(
        default=None, description="how tokens are sampled; a profile measured otherwise is warned of"
    )
    step_overhead: DurationNs = Field(default=0, description="extra host time of every step")
    draft_at_depth_zero: bool | None = None
    draft_pass_over: Literal["scheduled", "emitted"] | None = None
    draft_for_finished: bool | None = None
    draft_uniformly: bool | None = None
    draft_past_end: bool | None = None
    lookahead: bool | None = None
    draft_slots: bool | None = None
    null_block: bool | None = None
    dummy_drafts: bool | None = None
    pad_new_decodes: bool | None = None
    pad_queries: bool | None = None
    prefix_caching: bool | None = None
    drop_last_hit: bool | None = None
    capture_sizes: tuple[int, ...] | None = None

    @property
    def behaviour(self) -> Behaviour:
        """The preset's behaviour with this configuration's own settings on top."""
        preset = PRESETS[self.preset]
        own = {name: getattr(self, name, None) for name in Behaviour.model_fields}
        return preset.model_copy(update={name: value for name, value in own.items() if value is not None})
