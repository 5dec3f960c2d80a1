"""Decoder layers and whole decoders, built from a ``Shape``."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from calibrate.passes.attention import KERNELS, choose_attention, rope_table, rotate
from calibrate.passes.cache import KvCache, StateCache
from calibrate.passes.contract import Unsupported
from calibrate.passes.delta import DeltaNet
from calibrate.passes.experts import FeedForward, Routed, SwiGlu
from calibrate.passes.parallel import World
from calibrate.passes.step import Part, Step, lay_out
from calibrate.passes.weights import Weights
from calibrate.shapes import Shape

BUILT = {"qkv", "attention_out", "gate_up", "down", "router", "gdn_qkvz", "gdn_ba", "gdn_out", "fuse"}
"""Names of the products that passes know how to build."""


@dataclass(frozen=True)
class Context:
    """What a layer works with in one pass: where tokens sit, their rotations, the caches."""

    step: Step
    cos_sin: Tensor
    kv: KvCache
    state: StateCache


class Norm:
    """RMSNorm."""

    def __init__(self, size: int, weights: Weights) -> None:
        self.size, self.weight = size, weights.norm(size)

    def __call__(self, x: Tensor) -> Tensor:
        """Apply."""
        return functional.rms_norm(x, (self.size,), self.weight, 1e-6)


class FullAttention:
    """Grouped-query attention; with norms of queries and keys and a gate where the shape has them.

    ``split`` multiplies queries apart from keys and values, for drafters that add keys and values
    of the target's features.
    """

    def __init__(self, shape: Shape, weights: Weights, kernel: str, split: bool) -> None:
        at, (n, inputs) = shape.attention, product(shape, "qkv")
        self.at, self.attend, pairs = at, KERNELS[kernel], 2 * at.kv_heads * at.head_dim
        self.sizes, self.gated = [n - pairs, pairs], n - pairs > at.heads * at.head_dim
        self.products = [weights.linear(size, inputs) for size in (self.sizes if split else [n])]
        self.out = weights.linear(product(shape, "attention_out")[0], at.heads * at.head_dim)
        self.norms = [Norm(at.head_dim, weights) for _ in range(2)] if has_qk_norm(shape) else []

    def __call__(self, x: Tensor, at: Context, layer: int) -> Tensor:
        """``[tokens, inputs] -> [tokens, hidden]``, new keys and values in the cache."""
        queries, pairs = self._project(x)
        self._write(pairs, at, layer)
        width = self.at.heads * self.at.head_dim
        q, gate = queries[:, :width], queries[:, width:]
        q = rotate(self._normed(q.view(len(x), -1, self.at.head_dim), 0), at.cos_sin)
        keys, values = at.kv.keys[layer], at.kv.values[layer]
        outs = [self.attend(q[s.token : s.token + s.part.tokens], keys, values, s) for s in at.step.segments]
        out = (torch.cat(outs) if len(outs) > 1 else outs[0]).flatten(1)
        return self.out(out * gate.sigmoid() if self.gated else out)

    def note(self, x: Tensor, at: Context, layer: int) -> None:
        """Put keys and values of ``x [tokens, inputs]`` into the cache (needs ``split``)."""
        self._write(self.products[1](x), at, layer)

    def _write(self, pairs: Tensor, at: Context, layer: int) -> None:
        k, v = pairs.view(len(pairs), -1, self.at.head_dim).chunk(2, 1)
        at.kv.keys[layer].index_copy_(0, at.step.slots, rotate(self._normed(k, 1), at.cos_sin))
        at.kv.values[layer].index_copy_(0, at.step.slots, v)

    def _project(self, x: Tensor) -> tuple[Tensor, Tensor]:
        if len(self.products) > 1:
            return self.products[0](x), self.products[1](x)
        q, pairs = torch.split(self.products[0](x), self.sizes, -1)
        return q, pairs

    def _normed(self, heads: Tensor, which: int) -> Tensor:
        return self.norms[which](heads) if self.norms else heads


class Layer:
    """Attention or DeltaNet, then feed-forward, each behind a norm and beside the residual."""

    def __init__(
        self, shape: Shape, weights: Weights, kernel: str, full: bool, world: World, split: bool
    ) -> None:
        hidden = shape.head.k
        self.norms = [Norm(hidden, weights) for _ in range(2)]
        self.full, self.world = full, world
        self.attention = FullAttention(shape, weights, kernel, split) if full else None
        self.delta = DeltaNet(shape.gdn, weights) if shape.gdn and not full else None
        self.feed: FeedForward = (
            Routed(shape.moe, weights) if shape.moe else SwiGlu(hidden, product(shape, "down")[1], weights)
        )

    def __call__(self, hidden: Tensor, at: Context, cached: int, beside: Tensor | None = None) -> Tensor:
        """``beside`` stands before the normed hidden state as further inputs of attention (EAGLE)."""
        x = self.norms[0](hidden)
        mixed = self._mix(x if beside is None else torch.cat((beside, x), -1), at, cached)
        hidden = hidden + self.world.sum(mixed)
        return hidden + self.world.sum(self.feed(self.norms[1](hidden)))

    def _mix(self, x: Tensor, at: Context, cached: int) -> Tensor:
        if self.attention is not None:
            return self.attention(x, at, cached)
        assert self.delta is not None
        return self.delta(x, at.step, at.state, cached)


class Stack:
    """The layers of one model with their caches.

    With ``distinct`` fewer layers than the shape has, they are used in turn until all have run.
    """

    def __init__(
        self,
        shape: Shape,
        weights: Weights,
        world: World,
        positions: int,
        distinct: int | None = None,
        split: bool = False,
    ) -> None:
        check_shape(shape)
        at, before = shape.attention, weights.parameters
        self.kernel = choose_attention(weights.device, weights.dtype, at.heads, at.kv_heads, at.head_dim)
        self.weights, self.shared = weights, at.heads // at.kv_heads
        every = shape.layers // at.layers
        count = shape.layers if distinct is None else min(shape.layers, -(-distinct // every) * every)
        full = [i % every == every - 1 for i in range(count)]
        self.layers = [Layer(shape, weights, self.kernel, each, world, split) for each in full]
        self.parameters = weights.parameters - before
        self.cached = [i // every if layer.full else i - i // every for i, layer in enumerate(self.layers)]
        self.order = [i % count for i in range(shape.layers)]
        self.kv = KvCache(at, count // every, weights)
        self.state = StateCache(shape.gdn, count - count // every, weights)
        self.rope = rope_table(positions, at.head_dim, weights.device, weights.dtype)

    def plan(self, *parts: Part, slot: int = 0) -> Step:
        """Lay out a step and make room for it."""
        shared = self.shared if self.kernel == "sdpa" else 0
        step = lay_out(parts, self.weights.device, self.weights.dtype, shared, slot)
        if max(max(part.lengths) + part.width for part in parts) > len(self.rope):
            raise Unsupported(f"a sequence is longer than the {len(self.rope)} positions of this bench")
        self.kv.reserve(step.cache_tokens)
        self.state.reserve(step.state_rows, step.kept, step.tokens)
        return step

    def release(self) -> None:
        """Give back the room of all steps planned so far: they cannot run any more."""
        self.kv.release()
        self.state.release()

    def context(self, step: Step) -> Context:
        """What the layers need for this step."""
        return Context(step, self.rope[step.positions], self.kv, self.state)

    def __call__(self, hidden: Tensor, step: Step, beside: Tensor | None = None) -> Tensor:
        """``[tokens, hidden]`` through all layers."""
        at = self.context(step)
        for i in self.order:
            hidden = self.layers[i](hidden, at, self.cached[i], beside)
        return hidden


class Decoder:
    """A whole model: input table, layers, norm, head over its own vocabulary."""

    def __init__(
        self, shape: Shape, weights: Weights, world: World, positions: int, distinct: int | None = None
    ) -> None:
        self.shape, self.world, before = shape, world, weights.parameters
        head = weights.matrix(shape.head.n, shape.head.k)
        self.vocabulary = shape.head.n * world.size
        tied = not shape.embedding and world.size == 1
        self.table = head if tied else weights.matrix(self.vocabulary, shape.head.k)
        self.head = weights.unrounded(head)
        self.stack = Stack(shape, weights, world, positions, distinct)
        self.norm = Norm(shape.head.k, weights)
        self.parameters = weights.parameters - before
        if distinct is None and world.size == 1:
            check_parameters(shape, self.parameters)

    def __call__(self, ids: Tensor, step: Step, logits: Tensor) -> None:
        """Run ``ids [tokens]``; the logits of the wanted tokens go to ``logits``."""
        hidden = self.stack(self.table[ids], step)
        self.answer(self.norm(wanted(hidden, step)), logits)

    def answer(self, normed: Tensor, logits: Tensor) -> None:
        """Logits of normed hidden states, gathered from all ranks."""
        if self.world.size == 1:
            self.head(normed, logits)
        else:
            self.world.gather(self.head(normed), logits)


def wanted(hidden: Tensor, step: Step) -> Tensor:
    """The rows of ``hidden`` whose logits are wanted."""
    return hidden if len(step.wanted) == len(hidden) else hidden[step.wanted]


def product(shape: Shape, name: str) -> tuple[int, int]:
    """Outputs and inputs of a product by name."""
    for linear in (*shape.linears, *shape.once):
        if linear.name == name:
            return linear.n, linear.k
    raise Unsupported(f"{shape.name}: has no product {name!r}")


def has_qk_norm(shape: Shape) -> bool:
    """Whether queries and keys are normed, as the shape's elementwise kernels tell."""
    rotated = {e.width for e in shape.elementwise if e.op == "rope"}
    return any(e.op == "norm" and e.fused and e.width in rotated for e in shape.elementwise)


def check_shape(shape: Shape) -> None:
    """Refuse what would be timed as something else."""
    unknown = sorted({linear.name for linear in (*shape.linears, *shape.once)} - BUILT)
    if unknown:
        raise Unsupported(f"{shape.name}: passes do not build {', '.join(unknown)}")
    if shape.sliding or shape.attention.latent or (shape.moe and shape.moe.bias):
        raise Unsupported(
            f"{shape.name}: passes do not build sliding windows, latent attention or expert biases"
        )
    if shape.layers % shape.attention.layers:
        raise Unsupported(
            f"{shape.name}: {shape.attention.layers} attention layers do not divide {shape.layers}"
        )


def check_parameters(shape: Shape, made: int) -> None:
    """Refuse a shape with parts that were not built (biases and the like, under 1 %, are let pass)."""
    if abs(made / shape.parameters - 1) > 0.01:
        raise Unsupported(f"{shape.name}: passes build {made:,} parameters of its {shape.parameters:,}")
