"""Trains a target and its drafters on bytes, from one seed."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from calibrate.recording.corpus import Corpus
from calibrate.recording.model import ByteModel, Shape

TARGET: Final = Shape(layers=4, width=128, heads=4)
DRAFT: Final = Shape(layers=1, width=48, heads=4)


@dataclass(frozen=True)
class Plan:
    """How long to train: ``steps`` of ``windows`` windows of ``context`` bytes.

    ``context`` bounds prompt and output of a recording: beyond it the models have seen nothing, and
    acceptance falls for that reason alone.
    """

    steps: int
    windows: int = 16
    context: int = 256
    peak_rate: float = 3e-3


@dataclass(frozen=True)
class Training:
    """What training took and reached: CPU seconds, bytes seen, nats per byte of held-out text."""

    cpu_s: float
    tokens: int
    held_out_nats: float


def train(model: ByteModel, corpus: Corpus, plan: Plan, seed: int) -> Training:
    """Train ``model`` in place by next-byte cross entropy."""
    luck = torch.Generator().manual_seed(seed)

    def loss() -> Tensor:
        return next_byte_loss(model, corpus.training_windows(plan.windows, plan.context + 1, luck))

    cpu_s = descend(list(model.parameters()), loss, plan)
    text, _ = corpus.prompts(64, plan.context + 1, torch.Generator().manual_seed(0))
    with torch.no_grad():
        nats = float(next_byte_loss(model, text))
    return Training(round(cpu_s, 1), plan.steps * plan.windows * plan.context, round(nats, 3))


def next_byte_loss(model: ByteModel, windows: Tensor) -> Tensor:
    """Mean nats per byte of ``windows`` of shape (count, context + 1)."""
    return functional.cross_entropy(model(windows[:, :-1]).flatten(0, 1), windows[:, 1:].flatten())


def descend(weights: list[nn.Parameter], loss: Callable[[], Tensor], plan: Plan) -> float:
    """AdamW with a warm-up of 5 % and a cosine to a twentieth; returns the CPU seconds it took."""
    began = time.process_time()
    optimizer = torch.optim.AdamW(weights, lr=plan.peak_rate, betas=(0.9, 0.98), weight_decay=0.1)
    for step in range(plan.steps):
        for group in optimizer.param_groups:
            group["lr"] = plan.peak_rate * _share_of_peak(step, plan.steps)
        optimizer.zero_grad()
        torch.autograd.backward(loss())
        nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
    return time.process_time() - began


def _share_of_peak(step: int, steps: int) -> float:
    warm = max(1, steps // 20)
    if step < warm:
        return (step + 1) / warm
    return 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))
