"""Next-token probabilities and draws at a temperature; 0 is greedy."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from calibrate.recording.model import BYTES, ByteModel

GREEDY = 0.0


def probabilities(logits: Tensor, temperature: float) -> Tensor:
    """What is sampled from: softmax at ``temperature``, or all on the largest logit when greedy."""
    if temperature == GREEDY:
        return functional.one_hot(logits.argmax(-1), BYTES).to(logits.dtype)
    return (logits / temperature).softmax(-1)


def top_probability(logits: Tensor, temperature: float) -> Tensor:
    """The drafter's confidence: probability of its likeliest token, at temperature 1 when greedy."""
    return (logits / (temperature or 1.0)).softmax(-1).amax(-1)


def draw(chances: Tensor, luck: torch.Generator) -> Tensor:
    """One token per row of ``chances`` of shape (..., 256)."""
    return torch.multinomial(chances.flatten(0, -2), 1, generator=luck).view(chances.shape[:-1])


@torch.no_grad()
def generate(
    model: ByteModel, prompts: Tensor, tokens: int, temperature: float, luck: torch.Generator
) -> Tensor:
    """Prompts with ``tokens`` sampled tokens behind each, one after another."""
    cache = model.new_cache(len(prompts), prompts.shape[1] + tokens)
    text, new = prompts, prompts
    for _ in range(tokens):
        new = draw(probabilities(model(new, cache)[:, -1:], temperature), luck)
        text = torch.cat((text, new), dim=1)
    return text
