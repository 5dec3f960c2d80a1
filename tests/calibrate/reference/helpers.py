"""Small random models, policies that change their minds, and plain decoding to compare with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from calibrate.configs import from_config
from calibrate.passes.drafters import build_drafter
from calibrate.passes.linear import Plain
from calibrate.passes.model import Decoder
from calibrate.passes.parallel import World
from calibrate.passes.weights import Weights
from calibrate.recording.model import ByteModel
from calibrate.recording.model import Shape as ByteShape
from calibrate.reference.engine import Engine
from calibrate.reference.layout import Rows
from calibrate.reference.models import ByteDrafter, ByteTarget, Drafter, Head, Target, Transformer
from calibrate.reference.policy import Steering
from calibrate.reference.serving import Request, Serving
from sim.cost.step_cost import StepCost
from sim.policies.base import Batch, Depths, Outcome, PolicyDefaults
from tests.engine.modelled import linear_profile

DEPTH = 4
SERVING = Serving(max_num_seqs=5, max_num_batched_tokens=24, longest=64, max_model_len=99, max_depth=DEPTH)


def tiny_config(vocabulary: int, layers: int = 2) -> dict[str, Any]:
    return {
        "model_type": "llama",
        "hidden_size": 32,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "intermediate_size": 48,
        "vocab_size": vocabulary,
    }


@dataclass
class Pair:
    """A target and a drafter, in float64 so that the shape of a batch does not change a rounding."""

    target: Callable[[Serving], Target]
    drafter: Callable[[Serving], Drafter]


class Loud(Weights):
    """Weights so large that logits differ and greedy output wanders."""

    def matrix(self, *sizes: int) -> torch.Tensor:
        return super().matrix(*sizes).mul_(15)


def transformers(vocabulary: int = 61, seed: int = 0) -> Pair:
    weights = Loud(torch.device("cpu"), torch.float64, seed, Plain)
    draft_shape = from_config(tiny_config(vocabulary, 1), "draft")
    with torch.inference_mode():
        decoder = Decoder(from_config(tiny_config(vocabulary), "target"), weights, World(), 256)
        draft = build_drafter("draft_model", draft_shape, weights, decoder, 256)
    return Pair(
        lambda s: Transformer(decoder, s.max_num_seqs, s.slot_tokens),
        lambda s: Head(draft, decoder, s.max_num_seqs, s.slot_tokens, 512),
    )


def bytes_pair(seed: int = 0) -> Pair:
    torch.manual_seed(seed)
    models = [ByteModel(ByteShape(layers, 16, 2)).double() for layers in (2, 1)]
    for model in models:
        torch.nn.init.normal_(model.embedding.weight, std=0.5)
    return Pair(
        lambda s: ByteTarget(models[0], s.max_num_seqs, s.slot_tokens),
        lambda s: ByteDrafter(models[1], s.max_num_seqs, s.slot_tokens),
    )


def steering(policy: Any, cost: StepCost | None = None) -> Steering:
    profile = linear_profile()
    cost = cost or StepCost(profile, profile.drafters["d"], 1024)
    return Steering(policy, partial(Batch, cost=cost), Outcome)


def prompts(count: int, vocabulary: int, seed: int, shortest: int = 1, longest: int = 30) -> list[list[int]]:
    random = np.random.default_rng(seed)
    lengths = random.integers(shortest, longest + 1, count).tolist()
    return [random.integers(0, vocabulary, length).tolist() for length in lengths]


def requests(texts: Sequence[Sequence[int]], output: Sequence[int], gap_ns: int = 0) -> list[Request]:
    pairs = zip(texts, output, strict=True)
    return [Request(i, i * gap_ns, text, tokens) for i, (text, tokens) in enumerate(pairs)]


def plain(target: Target, text: Sequence[int], tokens: int) -> list[int]:
    """Greedy decoding, one token at a time, one sequence alone."""
    known, start = list(text), 0
    with torch.inference_mode():
        for _ in range(tokens):
            width = len(known) - start
            laid = target.lay_out(Rows([0], [start], [width], int(width == 1)), [width - 1])
            logits = target.run(laid, torch.tensor(known[start:]))
            start = len(known)
            known.append(int(logits.argmax()))
    return known


@dataclass
class Moody(PolicyDefaults):
    """Depths of its own for every sequence and step, from a seed; sometimes nothing at all."""

    seed: int = 0
    random: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)

    def draft_depths(self, batch: Batch) -> Depths:
        if self.random.random() < 0.3:
            return 0
        return self.random.integers(0, batch.max_depth + 1, batch.sequences)


class Timid(Moody):
    """Stops and trims by confidence, against a median of its own."""

    wants_confidence = True

    def stop_depths(self, batch: Batch, depths: Depths, confidence: Any) -> Depths:
        low = confidence < 0.2
        first = np.where(low.any(1), low.argmax(1) + 1, confidence.shape[1])
        return np.minimum(depths, first)

    def verify_depths(self, batch: Batch, depths: Depths, confidence: Any) -> Depths:
        kept = np.logical_and.accumulate(confidence > 0.25, axis=1).sum(1)
        return np.minimum(depths, kept)


def engine(pair: Pair, policy: Any, serving: Serving = SERVING, **more: Any) -> Engine:
    serving = replace(serving, max_depth=serving.max_depth if policy.drafts else 0)
    return Engine(serving, pair.target(serving), pair.drafter(serving), steering(policy), **more)
