"""The named switches: what a serving engine does around the policy, one mechanism each.

A preset (``sim/engine/presets.py``) sets them all; a scenario may set any by itself, so that a report
can show what each one costs.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from sim.units import Config


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
    capture_sizes: tuple[int, ...] | None = None
