"""Whole layers against the same mathematics written out token by token."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest

torch = pytest.importorskip("torch", reason="passes need torch (pip install 'leadline[calibrate]')")

from calibrate.passes import BenchSpec  # noqa: E402
from calibrate.passes.bench import TransformerBench  # noqa: E402
from calibrate.passes.drafters import BlockDrafter  # noqa: E402
from calibrate.passes.experts import Looped, Routed, SwiGlu  # noqa: E402
from calibrate.passes.linear import Plain  # noqa: E402
from calibrate.passes.model import Layer  # noqa: E402
from calibrate.passes.step import Part  # noqa: E402
from calibrate.passes.weights import Weights  # noqa: E402
from tests.calibrate.passes import shapes  # noqa: E402

if TYPE_CHECKING:
    from torch import Tensor


def rms(x: Tensor) -> Tensor:
    scaled: Tensor = x / (x.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt()
    return scaled


def turned(x: Tensor, position: int) -> Tensor:
    """Rotary embedding as a product of complex numbers (2104.09864, equation 12), base 1e6."""
    half = x.shape[-1] // 2
    angle = position * 1e6 ** (-torch.arange(half) / half)
    z = torch.complex(x[..., :half], x[..., half:]) * torch.polar(torch.ones(half), angle)
    halves: Tensor = torch.cat((z.real, z.imag), -1)
    return halves


def layer_by_hand(layer: Layer, hidden: Tensor) -> Tensor:
    """One Llama layer over a whole sequence that starts at position 0; norm weights are one."""
    attention = layer.attention
    assert attention is not None
    assert isinstance(layer.feed, SwiGlu)
    q, k, v = torch.split(attention.products[0](rms(hidden)), [64, 32, 32], -1)
    mixed = torch.zeros(len(hidden), 64)
    for t in range(len(hidden)):
        for head in range(4):
            query = turned(q[t].view(4, 16)[head], t)
            keys = torch.stack([turned(k[s].view(2, 16)[head // 2], s) for s in range(t + 1)])
            weights = (keys @ query / math.sqrt(16)).softmax(0)
            mixed[t, head * 16 : head * 16 + 16] = weights @ v[: t + 1].view(-1, 2, 16)[:, head // 2]
    hidden = hidden + attention.out(mixed)
    gate, up = layer.feed.gate_up(rms(hidden)).chunk(2, -1)
    return hidden + layer.feed.down(gate * gate.sigmoid() * up)


def test_a_llama_pass_equals_llama_written_out() -> None:
    target = TransformerBench.build(BenchSpec(shapes.LLAMA, max_context=64), "cpu", "float32", 2).target
    ids = torch.randint(98, (6,))
    with torch.inference_mode():
        step, logits = target.stack.plan(Part([0], 6)), torch.zeros(6, 98)
        target(ids, step, logits)
        hidden = target.table[ids]
        for layer in target.stack.layers:
            hidden = layer_by_hand(layer, hidden)
        torch.testing.assert_close(logits, target.head(rms(hidden)), rtol=1e-4, atol=1e-5)


def test_a_routed_layer_is_each_tokens_best_experts_weighted() -> None:
    moe = shapes.MIXTURE.moe
    assert moe is not None
    routed = Routed(moe, Weights(torch.device("cpu"), torch.float32, 3, Plain))
    assert isinstance(routed.experts, Looped)
    x = torch.randn(7, 32)
    for token, got in zip(x, routed(x), strict=True):
        chances = routed.router(token[None])[0].softmax(0)
        best = chances.argsort(descending=True)[: moe.active]
        parts = [chances[e] / chances[best].sum() * routed.experts.each[int(e)](token[None])[0] for e in best]
        torch.testing.assert_close(got, sum(parts))


def test_a_block_depends_on_the_features_of_the_fresh_tokens(spec: BenchSpec) -> None:
    drafters = {"block": spec.drafters["block"]}
    made = TransformerBench.build(BenchSpec(spec.target, drafters, 8, 64), "cpu", "float32", 2)
    drafter = made.drafters["block"]
    assert isinstance(drafter, BlockDrafter)
    seen = []
    with torch.inference_mode():
        fresh = drafter.stack.plan(Part([7], 4), slot=16)
        step = drafter.stack.plan(Part([11], 4, block=True), slot=16)
        for seed in (1, 2, 1):
            features = torch.randn(4, 96, generator=torch.Generator().manual_seed(seed))
            logits = torch.zeros(3, 98)
            drafter.block(torch.tensor([5, 6, 7, 8]), features, fresh, step, logits)
            seen.append(logits)
    torch.testing.assert_close(seen[0], seen[2])
    assert not torch.allclose(seen[0], seen[1])
