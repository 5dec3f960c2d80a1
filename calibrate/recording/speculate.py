"""Real speculative decoding of a pair: what a recording must predict.

Drafts are sampled, by the draft model one after another or by the block drafter at once, verified by the
target in one pass, and accepted by rejection sampling (Leviathan et al. 2023, Algorithm 1). Nothing here
knows of recordings.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from calibrate.recording.model import Cache
from calibrate.recording.pair import Pair
from calibrate.recording.sampling import draw, probabilities, top_probability


@dataclass(frozen=True)
class Rounds:
    """What rounds did, by request; the round that crosses the end counts whole.

    ``tokens`` and ``rounds`` have shape (requests,), ``text`` is prompts and output. Of the drafts
    behind a rejected one, ``behind_confidence`` is the mean top probability.
    """

    text: Tensor
    tokens: Tensor
    rounds: Tensor
    behind_confidence: float


class _Run:
    """The state of a batch of requests."""

    def __init__(self, pair: Pair, prompts: Tensor, room: int) -> None:
        self.pair = pair
        self.text = torch.cat((prompts, prompts.new_zeros(len(prompts), room)), dim=1)
        self.known = torch.full((len(prompts),), prompts.shape[1])
        self.verified = pair.target.new_cache(*self.text.shape)
        self.drafted = pair.draft.new_cache(*self.text.shape)
        pair.target(prompts[:, :-1], self.verified)
        pair.draft(prompts[:, :-1], self.drafted)

    def last(self, count: int) -> Tensor:
        """The last ``count`` known tokens, shape (requests, count)."""
        return self.text.gather(1, self.known[:, None] - count + torch.arange(count))

    def write(self, tokens: Tensor, kept: Tensor) -> None:
        """Append the first ``kept`` of ``tokens`` to each request."""
        at = self.known[:, None] + torch.arange(tokens.shape[1])
        new = torch.arange(tokens.shape[1]) < kept[:, None]
        self.text.scatter_(1, at, torch.where(new, tokens, self.text.gather(1, at)))
        self.known = self.known + kept


@torch.no_grad()
def speculate(
    pair: Pair,
    drafter: str,
    prompts: Tensor,
    tokens: int,
    depth: int,
    temperature: float,
    luck: torch.Generator,
) -> Rounds:
    """Rounds of ``depth`` drafts by ``pair`` or ``block`` until every request has ``tokens`` of output."""
    run = _Run(pair, prompts, tokens + 2 * depth + 2)
    end = prompts.shape[1] + tokens
    rounds = torch.zeros(len(prompts), dtype=torch.long)
    behind = torch.zeros(2, dtype=torch.float64)
    while bool((going := run.known < end).any()):
        drafts, claims, chances = _PROPOSE[drafter](run, depth, temperature, luck)
        accepted, emitted = _verify(run, drafts, chances, temperature, luck)
        lost = (torch.arange(depth) > accepted[:, None]) & going[:, None]
        behind += torch.stack((claims[lost].double().sum(), lost.sum().double()))
        run.write(emitted, (accepted + 1) * going)
        rounds += going
    return Rounds(run.text[:, :end], run.known - prompts.shape[1], rounds, float(behind[0] / behind[1]))


Proposal = tuple[Tensor, Tensor, Tensor]
"""Tokens and confidences of shape (requests, depth), and probabilities (requests, depth, 256)."""


def _by_model(run: _Run, depth: int, temperature: float, luck: torch.Generator) -> Proposal:
    _continue_from(run.drafted, run.known - 2)  # after a full acceptance the last draft was never read
    logits = run.pair.draft(run.last(2), run.drafted)[:, -1:]
    drafts, chances, claims = [], [], []
    for ahead in range(depth):
        chances.append(probabilities(logits, temperature))
        claims.append(top_probability(logits, temperature))
        drafts.append(draw(chances[-1], luck))
        if ahead + 1 < depth:
            logits = run.pair.draft(drafts[-1], run.drafted)
    return torch.cat(drafts, 1), torch.cat(claims, 1), torch.cat(chances, 1)


def _by_block(run: _Run, depth: int, temperature: float, luck: torch.Generator) -> Proposal:
    _continue_from(run.verified, run.known - 2)
    target, last = run.pair.target, run.last(2)
    states = target.states(last[:, :1], run.verified)
    logits = run.pair.block(states[:, 0], last[:, 1], target.embedding.weight)[:, :depth]
    chances = probabilities(logits, temperature)
    return draw(chances, luck), top_probability(logits, temperature), chances


_PROPOSE: Final[dict[str, Callable[[_Run, int, float, torch.Generator], Proposal]]] = {
    "pair": _by_model,
    "block": _by_block,
}


def _verify(
    run: _Run, drafts: Tensor, chances: Tensor, temperature: float, luck: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Accepted drafts per request, and the tokens of the round: drafts, with what is sampled behind them."""
    depth = drafts.shape[1]
    _continue_from(run.verified, run.known - 1)
    wanted = probabilities(run.pair.target(torch.cat((run.last(1), drafts), 1), run.verified), temperature)
    ratio = (wanted[:, :depth].gather(2, drafts[..., None]) / chances.gather(2, drafts[..., None]))[..., 0]
    passes = torch.rand(drafts.shape, generator=luck) < ratio
    accepted = passes.long().cumprod(1).sum(1)
    proposed = torch.cat((chances, torch.zeros_like(chances[:, :1])), 1)  # behind the last draft: p itself
    sampled = draw(_residual(_row(wanted, accepted), _row(proposed, accepted)), luck)
    emitted = torch.cat((drafts, drafts[:, :1]), 1).scatter(1, accepted[:, None], sampled[:, None])
    return accepted, emitted


def _continue_from(cache: Cache, length: Tensor) -> None:
    cache.length = length


def _row(values: Tensor, index: Tensor) -> Tensor:
    """``values[i, index[i]]``."""
    return values[torch.arange(len(index)), index]


def _residual(wanted: Tensor, proposed: Tensor) -> Tensor:
    """What is sampled from after a rejection, up to a factor: max(0, p - q); p where that is all zero."""
    rest = (wanted - proposed).clamp(min=0)
    return torch.where(rest.sum(-1, keepdim=True) > 0, rest, wanted)
