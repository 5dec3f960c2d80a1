"""The chance of every draft along trajectories of the target.

With q the drafter's and p the target's probabilities, rejection sampling (Leviathan et al. 2023) emits x
through an accepted draft with probability min(p(x), q(x)), and emits x at all with probability p(x). So
given that the target's trajectory holds x_t, the draft for position t was accepted with chance
r_t = min(1, q(x_t) / p(x_t)), both under the true prefix; greedy, r_t says whether the two agree. A draft
model's r_t does not depend on where its round started, hence one number per position replays every depth
and every policy; a block drafter's does, hence one per position and draft.

Confidence is the drafter's top probability under the true prefix. A draft model's drafts behind a rejected
one are really made under a wrong prefix: their confidence there is an approximation (docs say how far).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from calibrate.recording.block import BlockDrafter, block_logits
from calibrate.recording.model import ByteModel
from calibrate.recording.pair import Pair
from calibrate.recording.sampling import GREEDY, probabilities, top_probability

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Recording:
    """One drafter on some requests of equal output.

    ``chance`` and ``confidence`` have shape (requests, positions) for a draft model and (requests,
    positions, depth) for a block drafter, whose second index is the position its round starts at.
    """

    chance: Floats
    confidence: Floats


@torch.no_grad()
def record(pair: Pair, text: Tensor, prompt_tokens: int, temperature: float) -> dict[str, Recording]:
    """Both drafters, ``pair`` and ``block``, along ``text``, the target's own output behind prompts.

    ``text`` has at least the block drafter's depth of tokens more than the output to be recorded,
    so that drafts of the last rounds are known, too.
    """
    spare = pair.block.depth
    target = _target(pair.target, text, temperature)
    model = _draft_model(pair.draft, text, target, temperature)
    block = _block(pair.block, pair.target, text, target, temperature)
    return {
        "pair": _kept(model, slice(prompt_tokens, text.shape[1] - spare)),
        "block": _kept(block, slice(prompt_tokens, text.shape[1] - spare)),
    }


def _target(target: ByteModel, text: Tensor, temperature: float) -> Tensor:
    """p(x_t) for every token but the first, shape (sequences, n - 1); 1 when greedy."""
    if temperature == GREEDY:
        return torch.ones(len(text), text.shape[1] - 1)
    return _of(probabilities(target(text[:, :-1]), temperature), text[:, 1:])


def _draft_model(draft: ByteModel, text: Tensor, target: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Chance and confidence at every token, shape (sequences, n); nothing at the first."""
    logits = draft(text[:, :-1])
    drafted = _of(probabilities(logits, temperature), text[:, 1:])
    none = torch.zeros(len(text), 1)
    chance = torch.cat((none, (drafted / target).clamp(max=1)), dim=1)
    return chance, torch.cat((none, top_probability(logits, temperature)), dim=1)


def _block(
    block: BlockDrafter, model: ByteModel, text: Tensor, target: Tensor, temperature: float
) -> tuple[Tensor, Tensor]:
    """Chance and confidence of rounds that start at every token with a full block ahead.

    Shape (sequences, n - depth, depth); nothing at the first two tokens, before which no round starts.
    """
    starts = text.shape[1] - 2 - block.depth
    logits = block_logits(block, model, text)[:, :starts]
    ahead = text[:, 2:].unfold(1, block.depth, 1)[:, :starts]
    drafted = _of(probabilities(logits, temperature), ahead)
    likely = target[:, 1:].unfold(1, block.depth, 1)[:, :starts]
    none = torch.zeros(len(text), 2, block.depth)
    chance = torch.cat((none, (drafted / likely).clamp(max=1)), dim=1)
    return chance, torch.cat((none, top_probability(logits, temperature)), dim=1)


def _of(chances: Tensor, tokens: Tensor) -> Tensor:
    """Probability of each of ``tokens``."""
    return chances.gather(-1, tokens[..., None])[..., 0]


def _kept(pair: tuple[Tensor, Tensor], positions: slice) -> Recording:
    chance, confidence = (each[:, positions].double().numpy() for each in pair)
    return Recording(chance, confidence)
