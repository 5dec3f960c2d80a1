"""The work of a model, counted rather than timed: FLOPs, bytes read, bytes kept per token and sequence."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Frozen(BaseModel):
    """What every part of a profile is: fixed once read, and nothing in it that is not known."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Experts(Frozen):
    """Routed experts of a mixture-of-experts model (counts are per MoE layer)."""

    count: int = Field(gt=0)
    active: int = Field(gt=0)
    layers: int = Field(gt=0)
    bytes_each: float = Field(gt=0)
    flops_each_per_token: float = Field(gt=0)


class ModelWork(Frozen):
    """Work of one forward pass, for memory budgets and for FLOPs and bytes per token.

    ``weight_bytes`` is what the weights take in memory; ``read_bytes`` what one pass reads of
    them whatever its tokens (routed experts apart); ``flops_per_token`` is 2 x the active
    parameters, attention apart; ``attention_flops_per_query_context`` is 4 x heads x head size
    x attention layers. Of ``kv_bytes_per_token`` and of those FLOPs, ``window_kv_bytes_per_token``
    and ``window_attention_flops_per_query_context`` belong to layers that see no more than the last
    ``window_tokens`` (0: the model has none).
    """

    name: str
    parameters: float = Field(gt=0)
    weight_bytes: float = Field(ge=0)
    read_bytes: float = Field(ge=0)
    flops_per_token: float = Field(ge=0)
    attention_flops_per_query_context: float = Field(default=0.0, ge=0)
    kv_bytes_per_token: float = Field(default=0.0, ge=0)
    state_bytes_per_sequence: float = Field(default=0.0, ge=0)
    window_tokens: int = Field(default=0, ge=0)
    window_kv_bytes_per_token: float = Field(default=0.0, ge=0)
    window_attention_flops_per_query_context: float = Field(default=0.0, ge=0)
    experts: Experts | None = None

    @model_validator(mode="after")
    def _windows_are_parts(self) -> ModelWork:
        parts = (
            ("window_kv_bytes_per_token", "kv_bytes_per_token"),
            ("window_attention_flops_per_query_context", "attention_flops_per_query_context"),
        )
        for part, whole in parts:
            if getattr(self, part) > getattr(self, whole):
                raise ValueError(f"{part} is a part of {whole}; make it no larger")
            if getattr(self, part) and not self.window_tokens:
                raise ValueError(f"{part} needs window_tokens above 0")
        return self
