"""The engine of one replica: a preset, its limits and memory, and switches set by themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from sim.engine.behaviour import Behaviour, BehaviourSettings
from sim.engine.presets import ENGINES, PRESETS, PresetName
from sim.units import Bytes, BytesPerS, DurationNs


class EngineConfig(BehaviourSettings):
    """The engine of one replica."""

    preset: PresetName = Field(
        default="vllm_v1",
        description="whose habits and default limits; `leadline explain` prints them with their sources",
    )
    max_num_seqs: int = Field(default=256, ge=1, le=65536, description="sequences in one step")
    max_num_seqs_drafting: int | None = Field(
        default=None,
        ge=1,
        le=65536,
        description="sequences in one step where a drafter is loaded, if fewer; default: max_num_seqs",
    )
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
    drafter_max_model_len: int | None = Field(
        default=None, ge=2, description="longest context that the drafter can read; default: max_model_len"
    )
    draft_kv_tokens: int = Field(
        default=0,
        ge=0,
        description="most KV tokens of a sequence that a drafter pass reads (MagicDec); 0: no limit",
    )
    answers_end: Literal["stop", "limit"] = Field(
        default="stop",
        description=(
            "how answers end: at a stop token, which nobody foresees, or at a limit that the scheduler knows "
            "(max_tokens with ignore_eos); it matters under async_scheduling"
        ),
    )
    frontend_time: DurationNs = Field(
        default=0, description="time from the client's sending to the engine's queue, as in 3ms"
    )
    frontend_time_per_token: DurationNs = Field(
        default=0, description="the same, for each prompt token (tokenizer), as in 2us"
    )
    frontend_servers: int = Field(
        default=0,
        ge=0,
        le=1024,
        description="front-end processes that take one request at a time each; 0: nobody waits for one",
    )
    answer_time: DurationNs = Field(
        default=0, description="time from the end of a step to the client's receipt of its chunk, as in 1ms"
    )
    idle_rank_share: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="share of steps that run eagerly as another data-parallel rank has nothing to run",
    )
    stream_interval: int = Field(
        default=1, ge=1, description="tokens per streamed chunk; the first token is sent at once"
    )
    grammar_overhead: DurationNs = Field(
        default=0, description="host time per step and sequence of a structured class"
    )
    grammar_overhead_per_draft: DurationNs = Field(
        default=0, description="host time per draft verified for a sequence of a structured class"
    )
    depth_zero_overhead: DurationNs = Field(
        default=0, description="host time of a decode step without drafts when a drafter is loaded"
    )
    depth_zero_overhead_per_sequence: DurationNs = Field(
        default=0, description="the same, for each decoding sequence"
    )
    max_prefill_steps: int = Field(
        default=0,
        ge=0,
        description="prefill first: most prefill steps in a row while sequences decode; 0: no limit",
    )
    prefix_unit: int | None = Field(
        default=None,
        ge=1,
        description="tokens at whose multiples a cached prefix may end, whole blocks; default: one block",
    )
    swap_space: Bytes = Field(
        default=4 << 30, description="host memory for preempted KV under preemption: swap, as in 4GiB"
    )
    swap_bandwidth: BytesPerS = Field(
        default=25e9, description="speed of moving KV between host and device, as in 25GB/s"
    )
    sampling: Literal["greedy", "T=1"] | None = Field(
        default=None, description="how tokens are sampled; a profile measured otherwise is warned of"
    )
    step_overhead: DurationNs = Field(default=0, description="extra host time of every step")

    @model_validator(mode="before")
    @classmethod
    def _limits_of_the_engine(cls, data: Any) -> Any:
        """Limits that are not set are the preset's, where its engine has other defaults."""
        if not isinstance(data, Mapping) or data.get("preset") not in tuple(ENGINES):
            return data
        defaults = {name: field.default for name, field in cls.model_fields.items()}
        return {**ENGINES[data["preset"]].limits_beside(data, defaults), **data}

    @model_validator(mode="after")
    def _units_of_whole_blocks(self) -> Self:
        if self.prefix_unit is not None and self.prefix_unit % self.block_size:
            raise ValueError(
                f"prefix_unit {self.prefix_unit} is not a multiple of block_size {self.block_size}; "
                "make it one, or change block_size"
            )
        return self

    def beside(self, drafter: object | None) -> EngineConfig:
        """The engine with a drafter loaded, or without: some take fewer sequences then."""
        most = self.max_num_seqs_drafting
        if drafter is None or most is None or most >= self.max_num_seqs:
            return self
        return self.model_copy(update={"max_num_seqs": most})

    @property
    def behaviour(self) -> Behaviour:
        """The preset's behaviour with this configuration's own settings on top."""
        preset = PRESETS[self.preset]
        own = {name: getattr(self, name, None) for name in Behaviour.model_fields}
        return preset.model_copy(update={name: value for name, value in own.items() if value is not None})
