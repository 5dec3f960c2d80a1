"""The named switches: what a serving engine does around the policy, one mechanism each.

A preset (``sim/engine/presets.py``) sets them all; a scenario may set any by itself, so that a report
can show what each one costs.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from sim.cost.graphs import GraphMode
from sim.units import Config

GraphSize = Annotated[int, Field(ge=1, le=1 << 20)]
"""Tokens of one captured graph."""


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
    graphs: GraphMode = Field(
        description=(
            "graph mode of the target pass, as vLLM names it: a uniform decode batch may run in one "
            "graph while mixed steps run in pieces; beyond the largest size it runs eagerly "
            "(vllm/v1/cudagraph_dispatcher.py)"
        )
    )
    varying_depth_graphs: Literal["kept", "piecewise"] = Field(
        description=(
            "a policy that varies the depth has full graphs for every depth (vLLM's Model Runner V2, "
            "SGLang), or loses them (vLLM V1: vllm/config/vllm.py overrides the mode)"
        )
    )
    capture_multiples: bool = Field(
        description=(
            "captured sizes are rounded up to whole sequences of depth + 1 tokens "
            "(vllm/config/compilation.py, adjust_cudagraph_sizes_for_spec_decode)"
        )
    )
    overlap_host: bool = Field(
        description=(
            "the host prepares a step while the one before it runs on the device "
            "(vllm/v1/core/sched/async_scheduler.py; SGLang's overlap scheduler)"
        )
    )
    async_scheduling: bool = Field(
        description=(
            "a step is scheduled when the one before it begins: a request that comes meanwhile waits for "
            "one step more, and a sequence whose end was not certain is computed once more "
            "(vllm/v1/engine/core.py, step_with_batch_queue)"
        )
    )
    stale_decisions: int = Field(
        ge=0,
        le=16,
        description=(
            "steps by which the batch and the outcomes that depths are chosen from lag behind; "
            "asynchronous scheduling: 1"
        ),
    )
    pad_depths: bool = Field(
        description=(
            "every sequence verifies as many drafts as the deepest; those nobody proposed are never "
            "accepted (SGLang, TensorRT-LLM)"
        )
    )
    drafter_limit_stops_all: bool = Field(
        description=(
            "a sequence that outgrows drafter_max_model_len ends drafting for the whole batch, not for "
            "itself alone; under dummy_drafts all carry dummies instead"
        )
    )
    checkpoint_states: bool = Field(
        description=(
            "a hybrid model keeps one recurrent state per verified position in memory, beside its own "
            "(vllm/v1/kv_cache_interface.py, MambaSpec.num_speculative_blocks)"
        )
    )
    prefill: Literal["mixed", "first"] = Field(
        description="prompts ride in the steps of decodes, or have steps of their own while decodes wait"
    )
    mixed_under_speculation: bool = Field(
        description="mixed prefill stays so with a drafter; SGLang 0.4 put prompts first then"
    )
    chunked_prefill: bool = Field(description="a prompt may be cut to what is left of a step's budget")
    reserved_output: float = Field(
        ge=0, le=1, description="share of every answer to come whose KV must be free to admit a request"
    )
    preemption: Literal["recompute", "swap"] = Field(
        description="a preempted sequence's KV is dropped, or moved to host memory while that has room"
    )
    victim: Literal["last", "fewest_output"] = Field(
        description="who is preempted: the one admitted last, or who has produced least, longest prompt first"
    )
    requeue: Literal["front", "back"] = Field(
        description="where a preempted sequence waits, unless its KV is in host memory: then in front"
    )


class BehaviourSettings(Config):
    """Switches that a scenario sets by itself; what is not set is the preset's."""

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
    capture_sizes: tuple[GraphSize, ...] | None = None
    graphs: GraphMode | None = None
    varying_depth_graphs: Literal["kept", "piecewise"] | None = None
    capture_multiples: bool | None = None
    overlap_host: bool | None = None
    async_scheduling: bool | None = None
    stale_decisions: int | None = Field(default=None, ge=0, le=16)
    pad_depths: bool | None = None
    drafter_limit_stops_all: bool | None = None
    checkpoint_states: bool | None = None
    prefill: Literal["mixed", "first"] | None = None
    mixed_under_speculation: bool | None = None
    chunked_prefill: bool | None = None
    reserved_output: float | None = Field(default=None, ge=0, le=1)
    preemption: Literal["recompute", "swap"] | None = None
    victim: Literal["last", "fewest_output"] | None = None
    requeue: Literal["front", "back"] | None = None
