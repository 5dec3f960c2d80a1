"""What follows a verify pass: which drafts survive, the token after them, and the books.

``sampled`` is speculative sampling (2211.17192, algorithm 1): its output is distributed as the target's.
"""

from __future__ import annotations

import torch
from torch import Tensor

from calibrate.passes.contract import Sampling

Verdict = tuple[Tensor, Tensor]
"""(accepted drafts ``[rows]``, token after them ``[rows]``)."""


def greedy(logits: Tensor, drafts: Tensor) -> Verdict:
    """Accept while the draft is the target's best token. ``logits [rows, k + 1, vocabulary]``."""
    best = logits.argmax(-1)
    accepted = _run_length(best[:, :-1] == drafts)
    return accepted, best.gather(1, accepted[:, None])[:, 0]


def sampled(
    logits: Tensor, drafts: Tensor, chances: Tensor, generator: torch.Generator | None = None
) -> Verdict:
    """Accept x with chance min(1, p(x) / q(x)); draw the next token from the rest of p.

    ``logits [rows, k + 1, vocabulary]``, ``drafts [rows, k]``, ``chances [rows, k, vocabulary]`` (the q
    that the drafts were drawn from).
    """
    p = logits.float().softmax(-1)
    at = drafts[..., None]
    p_draft, q_draft = p[:, :-1].gather(2, at)[..., 0], chances.gather(2, at)[..., 0]
    luck = torch.empty_like(p_draft).uniform_(generator=generator)
    accepted = _run_length(luck * q_draft < p_draft)
    return accepted, draw(_rest(p, chances, accepted), generator)


def _rest(p: Tensor, chances: Tensor, accepted: Tensor) -> Tensor:
    """max(0, p - q) at the first rejected position, all of p after a whole run."""
    depth = chances.shape[1]
    here = p[torch.arange(len(p), device=p.device), accepted]
    if not depth:
        return here
    q = chances[torch.arange(len(p), device=p.device), accepted.clamp_max(depth - 1)]
    return (here - q * (accepted < depth)[:, None]).clamp_min_(0)


def draw(weights: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """One index per row, by ``weights`` (they need no sum): the first of exponential clocks."""
    return (weights / torch.empty_like(weights).exponential_(generator=generator)).argmax(-1)


def _run_length(kept: Tensor) -> Tensor:
    return kept.long().cumprod(-1).sum(-1)


class Desk:
    """The buffers of a round's decisions, and the bookkeeping of ``accept``.

    ``tokens [rows, k + 1]`` receives what is emitted, -1 behind it, and ``ends`` the new lengths; nobody
    reads them back, so every repetition does the same.
    """

    def __init__(self, lengths: Tensor, depth: int, logits: Tensor, sampling: Sampling, seed: int) -> None:
        rows, device = len(lengths), lengths.device
        self.lengths, self.depth, self.logits, self.sampling = lengths, depth, logits, sampling
        # A generator of our own cannot be captured in a CUDA graph unregistered; torch's can.
        self.generator = None if device.type == "cuda" else torch.Generator(device).manual_seed(seed)
        vocabulary, columns = logits.shape[-1], max(depth, 1)  # a lone draft pass notes one, too
        self.drafts = torch.randint(vocabulary, (rows, columns), device=device, generator=self.generator)
        self.chances = self._random_chances(rows, columns if sampling != "greedy" else 0, vocabulary)
        self.tokens = torch.full((rows, depth + 1), -1, device=device)
        self.accepted, self.ends = torch.zeros_like(lengths), lengths.clone()
        self.column = torch.arange(depth + 1, device=device)

    def _random_chances(self, rows: int, depth: int, vocabulary: int) -> Tensor:
        empty = torch.empty(rows, depth, vocabulary, device=self.lengths.device)
        return empty.normal_(generator=self.generator).softmax(-1)

    def propose(self, logits: Tensor, column: int, ids: Tensor | None) -> Tensor:
        """Choose the draft of every row and note it; ``ids`` maps a drafter's own vocabulary."""
        if self.sampling == "greedy":
            chosen = logits.argmax(-1)
        else:
            chances = logits.float().softmax(-1)
            chosen = draw(chances, self.generator)
            self._note_chances(chances, column, ids)
        token = chosen if ids is None else ids[chosen]
        self.drafts[:, column] = token
        return token

    def _note_chances(self, chances: Tensor, column: int, ids: Tensor | None) -> None:
        if ids is None:
            self.chances[:, column] = chances
        else:
            self.chances[:, column].zero_().index_copy_(1, ids, chances)

    def accept(self) -> None:
        """Decide, and write down what a server would send and remember."""
        logits = self.logits.view(len(self.lengths), self.depth + 1, -1)
        drafts, chances = self.drafts[:, : self.depth], self.chances[:, : self.depth]
        if self.sampling == "greedy":
            accepted, after = greedy(logits, drafts)
        else:
            accepted, after = sampled(logits, drafts, chances, self.generator)
        held = torch.cat((drafts, after[:, None]), 1)
        held = torch.where(self.column == accepted[:, None], after[:, None], held)
        self.tokens.copy_(held.masked_fill_(self.column > accepted[:, None], -1))
        self.accepted.copy_(accepted)
        torch.add(self.lengths, accepted + 1, out=self.ends)
