"""Acceptance keeps the target's law."""

from __future__ import annotations

import pytest
from scipy import stats

torch = pytest.importorskip("torch", reason="passes need torch (pip install 'leadline[calibrate]')")

from calibrate.passes.accept import Desk, draw, greedy, sampled  # noqa: E402

ROWS, VOCABULARY = 40_000, 5


def test_the_first_token_out_is_distributed_as_the_targets() -> None:
    """Speculative sampling, 2211.17192, theorem in appendix A.1: chi-square at the 0.1 % level."""
    generator = torch.Generator().manual_seed(3)
    logits = torch.tensor([[0.1, 1.2, -0.5, 0.7, -2.0], [0.3, 0.0, 0.2, -1.0, 0.9]])
    q = torch.tensor([0.5, 0.1, 0.2, 0.05, 0.15]).expand(ROWS, 1, VOCABULARY).contiguous()
    drafts = draw(q[:, 0], generator)[:, None]
    accepted, after = sampled(logits.expand(ROWS, 2, VOCABULARY), drafts, q, generator)
    out = torch.where(accepted > 0, drafts[:, 0], after)
    expected = logits[0].double().softmax(0) * ROWS
    seen = torch.bincount(out, minlength=VOCABULARY)
    assert stats.chisquare(seen.numpy(), expected.numpy()).pvalue > 1e-3
    bonus = torch.bincount(after[accepted > 0], minlength=VOCABULARY).double()
    assert stats.chisquare(bonus.numpy(), (logits[1].double().softmax(0) * bonus.sum()).numpy()).pvalue > 1e-3


def test_drafts_survive_as_often_as_the_distributions_overlap() -> None:
    """The chance of acceptance is sum min(p, q) (2211.17192, corollary 3.6)."""
    generator = torch.Generator().manual_seed(4)
    logits = torch.tensor([0.1, 1.2, -0.5, 0.7, -2.0])
    q = torch.tensor([0.5, 0.1, 0.2, 0.05, 0.15])
    chances = q.expand(ROWS, 1, VOCABULARY).contiguous()
    drafts = draw(chances[:, 0], generator)[:, None]
    accepted, _ = sampled(logits.expand(ROWS, 2, VOCABULARY), drafts, chances, generator)
    overlap = float(torch.minimum(logits.softmax(0), q).sum())
    assert float(accepted.float().mean()) == pytest.approx(overlap, abs=4 * (0.25 / ROWS) ** 0.5)


def test_greedy_accepts_while_the_best_tokens_agree() -> None:
    logits = torch.nn.functional.one_hot(torch.tensor([[3, 1, 4, 2], [0, 2, 2, 1]]), 5).float()
    accepted, after = greedy(logits, torch.tensor([[3, 1, 0], [4, 2, 2]]))
    assert accepted.tolist() == [2, 0]
    assert after.tolist() == [4, 0]


def test_the_books_hold_what_was_emitted_and_the_new_lengths() -> None:
    lengths = torch.tensor([10, 20])
    logits = torch.nn.functional.one_hot(torch.tensor([3, 1, 4, 0, 2, 2]), 5).float()
    desk = Desk(lengths, 2, logits, "greedy", seed=0)
    desk.drafts.copy_(torch.tensor([[3, 0], [0, 2]]))
    desk.accept()
    assert desk.tokens.tolist() == [[3, 1, -1], [0, 2, 2]]
    assert desk.ends.tolist() == [12, 23]
    assert lengths.tolist() == [10, 20], "pinned"


def test_a_reduced_vocabulary_keeps_its_chances_at_the_targets_ids() -> None:
    desk = Desk(torch.tensor([4]), 1, torch.randn(2, 6), "T=1", seed=0)
    token = desk.propose(torch.tensor([[50.0, 0.0]]), 0, torch.tensor([1, 4]))
    assert token.tolist() == [1]
    assert desk.chances[0, 0].tolist() == pytest.approx([0, 1, 0, 0, 0, 0], abs=1e-6)
