"""Model shapes: what one forward pass multiplies, reads and keeps.

A ``Shape`` lists the matrix products of a pass as ``(n, k, count)`` (``n`` outputs, ``k`` inputs,
``count`` of them in one pass), its attention, gated-DeltaNet and routed-expert layers, its small
elementwise kernels and its output head. Products that an engine fuses (query, key and value; gate
and up) are fused here, because the measured tables time the fused product.

``calibrate.configs`` reads them from a ``config.json``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from calibrate.profile import Experts, ModelWork

Op = Literal["norm", "act", "rope", "add"]

STATE_BYTES = 4
"""Recurrent state is kept in float32 (``mamba_ssm_dtype`` of Qwen3.5)."""


@dataclass(frozen=True)
class Linear:
    """``count`` products of a token's ``k`` inputs into ``n`` outputs, in one forward pass."""

    name: str
    n: int
    k: int
    count: int = 1

    @property
    def parameters(self) -> int:
        """Weights of all ``count`` products."""
        return self.n * self.k * self.count


@dataclass(frozen=True)
class Attention:
    """Attention layers with grouped queries.

    ``latent`` above 0 is DeepSeek's multi-head latent attention in its absorbed form: one entry of
    ``head_dim`` numbers is cached per token, and its first ``latent`` serve as the values, too.
    """

    heads: int
    kv_heads: int
    head_dim: int
    layers: int
    latent: int = 0

    @property
    def kv_values_per_token(self) -> int:
        """Numbers cached per token, over all layers."""
        return (self.head_dim if self.latent else 2 * self.kv_heads * self.head_dim) * self.layers

    @property
    def flops_per_query_context(self) -> int:
        """Scores and weighted sum of one query token over one cached token, over all layers."""
        return 2 * self.heads * (self.head_dim + (self.latent or self.head_dim)) * self.layers


@dataclass(frozen=True)
class Sliding:
    """Attention layers that see the last ``window`` tokens only."""

    attention: Attention
    window: int

    @property
    def state_values(self) -> int:
        """Numbers kept per sequence once the window is full, over all layers."""
        return self.window * self.attention.kv_values_per_token


@dataclass(frozen=True)
class Gdn:
    """Gated-DeltaNet layers: a fixed state per sequence instead of keys and values."""

    hidden: int
    key_heads: int
    key_dim: int
    value_heads: int
    value_dim: int
    conv: int
    layers: int

    @property
    def conv_channels(self) -> int:
        """Channels of the short convolution: queries, keys and values."""
        return 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim

    def state_bytes(self, dtype_bytes: float) -> float:
        """Recurrent and convolution state of one sequence, over all layers."""
        recurrent = self.value_heads * self.key_dim * self.value_dim * STATE_BYTES
        return self.layers * (recurrent + self.conv_channels * (self.conv - 1) * dtype_bytes)


@dataclass(frozen=True)
class Moe:
    """Routed experts; the shared parts of the layer are ordinary linears."""

    hidden: int
    inter: int
    experts: int
    active: int
    layers: int
    bias: bool = False

    @property
    def parameters_each(self) -> int:
        """Weights of one expert of one layer."""
        bias = 2 * self.inter + self.hidden if self.bias else 0
        return 3 * self.hidden * self.inter + bias


@dataclass(frozen=True)
class Elementwise:
    """``count`` memory-bound kernels over ``width`` values per token.

    ``fused`` ones are compiled into a neighbour: they cost their traffic, not a launch.
    """

    op: Op
    width: int
    count: int
    fused: bool = False


@dataclass(frozen=True)
class Shape:
    """One model, or one draft head that borrows parts of its target.

    ``once`` are products of a drafter's first pass only (EAGLE-3's feature fusion).
    ``attention`` are the layers that see the whole context, ``sliding`` those that do not.
    ``embedding`` counts the parameters of an input table of its own (0 when tied or borrowed);
    ``borrowed_head`` says that the head's weights belong to the target.
    """

    name: str
    layers: int
    linears: tuple[Linear, ...]
    head: Linear
    elementwise: tuple[Elementwise, ...]
    attention: Attention
    sliding: Sliding | None = None
    gdn: Gdn | None = None
    moe: Moe | None = None
    once: tuple[Linear, ...] = ()
    embedding: int = 0
    borrowed_head: bool = False
    small_parameters: int = 0

    @property
    def read_parameters(self) -> int:
        """Weights that every pass reads: all but the input table, ``once`` and routed experts."""
        return sum(linear.parameters for linear in (*self.linears, self.head)) + self.small_parameters

    @property
    def expert_parameters(self) -> int:
        """Weights of all routed experts."""
        return 0 if self.moe is None else self.moe.layers * self.moe.experts * self.moe.parameters_each

    @property
    def parameters(self) -> int:
        """Parameters of its own, borrowed ones apart."""
        borrowed = self.head.parameters if self.borrowed_head else 0
        own = self.read_parameters + sum(linear.parameters for linear in self.once) - borrowed
        return own + self.embedding + self.expert_parameters

    @property
    def active_parameters(self) -> int:
        """Parameters that one token multiplies (the input table is looked up, not multiplied)."""
        routed = 0
        if self.moe is not None:
            routed = self.moe.layers * self.moe.active * self.moe.parameters_each
        return self.read_parameters + routed

    def work(self, dtype_bytes: float = 2, expert_bytes: float | None = None) -> ModelWork:
        """The profile's account of this shape, with weights and KV cache of ``dtype_bytes``.

        ``expert_bytes`` per parameter of the routed experts where they are quantised apart
        (mxfp4: 17 / 32, with one scale per 32 numbers).
        """
        each = dtype_bytes if expert_bytes is None else expert_bytes
        routed = self.expert_parameters
        near = Attention(0, 0, 0, 0) if self.sliding is None else self.sliding.attention
        return ModelWork(
            name=self.name,
            parameters=self.parameters,
            weight_bytes=(self.parameters - routed) * dtype_bytes + routed * each,
            read_bytes=self.read_parameters * dtype_bytes,
            flops_per_token=2 * self.active_parameters,
            attention_flops_per_query_context=(
                self.attention.flops_per_query_context + near.flops_per_query_context
            ),
            kv_bytes_per_token=(self.attention.kv_values_per_token + near.kv_values_per_token) * dtype_bytes,
            state_bytes_per_sequence=0.0 if self.gdn is None else self.gdn.state_bytes(dtype_bytes),
            window_tokens=0 if self.sliding is None else self.sliding.window,
            window_kv_bytes_per_token=near.kv_values_per_token * dtype_bytes,
            window_attention_flops_per_query_context=near.flops_per_query_context,
            experts=None if self.moe is None else _experts(self.moe, each),
        )


def _experts(moe: Moe, dtype_bytes: float) -> Experts:
    return Experts(
        count=moe.experts,
        active=moe.active,
        layers=moe.layers,
        bytes_each=moe.parameters_each * dtype_bytes,
        flops_each_per_token=2 * moe.parameters_each,
    )
