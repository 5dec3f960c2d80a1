"""A block drafter: all drafts of a round at once, from the target's last hidden state.

As Medusa's heads (Cai et al. 2024) each draft position has its own small net; unlike them they also see
the bonus token, as EAGLE (Li et al. 2024) does. A draft does not see the drafts before it, so acceptance
falls with the position.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from calibrate.recording.corpus import Corpus
from calibrate.recording.model import ByteModel
from calibrate.recording.train import Plan, descend


class BlockDrafter(nn.Module):
    """Logits of the next ``depth`` bytes."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.depth = depth
        self.mix = nn.Linear(2 * width, width, bias=False)
        self.heads = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.norm = nn.RMSNorm(width)

    @property
    def parameter_count(self) -> int:
        """Weights of its own; the embedding is the target's."""
        return sum(each.numel() for each in self.parameters())

    def forward(self, states: Tensor, bonus: Tensor, embedding: Tensor) -> Tensor:
        """Logits of shape (..., depth, 256).

        ``states`` of shape (..., width) are the target's after its last input, ``bonus`` of shape
        (...) the tokens it sampled from them; draft ``j`` from 0 is for ``j + 1`` positions behind it.
        """
        x = self.mix(torch.cat((states, embedding[bonus]), dim=-1))
        drafts = torch.stack([x + functional.silu(head(x)) for head in self.heads], dim=-2)
        normed: Tensor = self.norm(drafts)
        return normed @ embedding.T


def block_logits(drafter: BlockDrafter, target: ByteModel, tokens: Tensor) -> Tensor:
    """Logits of every round that could start in ``tokens``, shape (sequences, n - 1, depth, 256).

    Round ``i`` has token ``i + 1`` as its bonus, so its first draft is for token ``i + 2``.
    """
    with torch.no_grad():
        states = target.states(tokens[:, :-1])
    logits: Tensor = drafter(states, tokens[:, 1:], target.embedding.weight.detach())
    return logits


def train_block(drafter: BlockDrafter, target: ByteModel, corpus: Corpus, plan: Plan, seed: int) -> float:
    """Train ``drafter`` in place on text, the target fixed; returns CPU seconds."""
    luck = torch.Generator().manual_seed(seed)

    def loss() -> Tensor:
        tokens = corpus.training_windows(plan.windows, plan.context, luck)
        starts = plan.context - 1 - drafter.depth
        logits = block_logits(drafter, target, tokens)[:, :starts]
        ahead = tokens[:, 2:].unfold(1, drafter.depth, 1)[:, :starts]
        return functional.cross_entropy(logits.flatten(0, 2), ahead.flatten())

    return descend(list(drafter.parameters()), loss, plan)
