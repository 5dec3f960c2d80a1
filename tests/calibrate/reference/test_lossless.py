"""Speculation changes nothing but the time: whatever a policy does, the text is the target's own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from calibrate.reference.engine import Engine
from calibrate.reference.layout import Rows
from calibrate.reference.serving import Serving
from sim.policies.goodput import Goodput
from sim.policies.leadline import Leadline
from sim.policies.off import Off
from sim.policies.static import Static
from tests.calibrate.reference.helpers import (
    DEPTH,
    SERVING,
    Moody,
    Pair,
    Timid,
    bytes_pair,
    engine,
    plain,
    prompts,
    requests,
    steering,
    transformers,
)

POLICIES = {
    "off": Off,
    "static 1": lambda: Static(1),
    "static 4": lambda: Static(DEPTH),
    "depths of each sequence": Moody,
    "stop and trim": Timid,
    "goodput": lambda: Goodput(DEPTH, 0.7, 0.15, 5),
    "leadline": lambda: Leadline(DEPTH),
}
IDEAL = replace(
    SERVING,
    draft_at_depth_zero=False,
    draft_over_scheduled=False,
    draft_for_finished=False,
    draft_uniformly=False,
    draft_past_end=False,
)


@pytest.fixture(scope="module")
def pair() -> Pair:
    return transformers()


@pytest.mark.parametrize("serving", [SERVING, IDEAL], ids=["vllm", "ideal"])
@pytest.mark.parametrize("name", POLICIES)
def test_greedy_output_is_that_of_plain_decoding(pair: Pair, name: str, serving: Serving) -> None:
    """More requests than slots, prompts in chunks, arrivals while others run."""
    texts = prompts(9, 61, seed=1)
    lengths = [3, 17, 1, 12, 20, 2, 9, 14, 5]
    made = engine(pair, POLICIES[name](), serving)
    made.serve(requests(texts, lengths, gap_ns=2_000_000))
    target = pair.target(serving)
    assert made.texts == {
        i: plain(target, text, n) for i, (text, n) in enumerate(zip(texts, lengths, strict=True))
    }


@pytest.mark.parametrize("policy", [Static(3), Moody(1), Timid(2)])
def test_the_byte_models_decode_greedily_as_they_do_alone(policy: Any) -> None:
    pair = bytes_pair()
    texts, lengths = prompts(7, 256, seed=2), [8, 3, 15, 1, 11, 6, 9]
    made = engine(pair, policy)
    made.serve(requests(texts, lengths))
    target = pair.target(SERVING)
    assert made.texts == {
        i: plain(target, text, n) for i, (text, n) in enumerate(zip(texts, lengths, strict=True))
    }


class _Checked(Engine):
    """Compares the drafts that every sequence carries with what the drafter alone says to its text."""

    alone: Any
    seen = 0

    def step(self, now: int) -> tuple[int, int]:
        for sequence in self.scheduler.running:
            if sequence.drafts:
                text = sequence.text[1:]  # a drafter reads all but the first token
                assert text + sequence.drafts == plain(self.alone, text, len(sequence.drafts))
                self.seen += 1
        return super().step(now)


@pytest.mark.parametrize("serving", [SERVING, IDEAL], ids=["vllm", "ideal"])
@pytest.mark.parametrize("policy", [Static(DEPTH), Moody(3), Timid(4)])
def test_drafts_are_the_drafters_own_continuation(pair: Pair, policy: Any, serving: Serving) -> None:
    """So its cache holds the text and nothing else, after rejections, steps off and moves of slots alike."""
    made = _Checked(serving, pair.target(serving), pair.drafter(serving), steering(policy))
    made.alone = transformers().drafter(serving)  # the same weights, another cache
    made.serve(requests(prompts(7, 61, seed=3), [16, 4, 9, 12, 1, 10, 5], gap_ns=1_000_000))
    assert made.seen > 5


def test_rejected_drafts_leave_no_trace_in_the_cache(pair: Pair) -> None:
    """Keys and values of the text are those that one pass over the text alone writes."""
    fresh = transformers()

    class Watched(Engine):
        rejected = 0

        def step(self, now: int) -> tuple[int, int]:
            done = super().step(now)
            self.rejected += self.journal.steps[-1]["drafted"] - self.journal.steps[-1]["accepted"]
            for sequence in self.scheduler.running:
                text = sequence.text[: sequence.computed]
                alone = fresh.target(SERVING)
                alone.run(alone.lay_out(Rows([0], [0], [len(text)], 0), []), torch.tensor(text))
                for ours, theirs in zip(_pools(self.target), _pools(alone), strict=True):
                    slot = self.target.layout.slot * sequence.slot  # type: ignore[attr-defined]
                    torch.testing.assert_close(ours[slot : slot + len(text)], theirs[: len(text)])
            return done

    made = Watched(SERVING, pair.target(SERVING), pair.drafter(SERVING), steering(Moody(5)))
    made.serve(requests(prompts(4, 61, seed=4), [9, 4, 7, 5]))
    assert made.rejected > 20


def _pools(target: Any) -> list[torch.Tensor]:
    return [*target.stack.kv.keys, *target.stack.kv.values]


VOCABULARY, WORDS, MANY = 4, 3, 2000


@pytest.mark.parametrize("policy", [Static(DEPTH), Moody(6), Timid(7)])
def test_sampled_output_is_distributed_as_the_targets(policy: Any) -> None:
    """Chi-square over all texts of three tokens from a vocabulary of four, from one prompt."""
    pair = transformers(VOCABULARY, seed=1)
    prompt, temperature = [1, 3, 0], 2.0
    serving = replace(SERVING, max_num_seqs=64, max_num_batched_tokens=512, longest=16)
    made = Engine(serving, pair.target(serving), pair.drafter(serving), steering(policy), temperature, seed=8)
    journal = made.serve(requests([prompt] * MANY, [WORDS] * MANY))
    shares = _shares(transformers(VOCABULARY, seed=1).target(SERVING), prompt, temperature)
    code = VOCABULARY ** np.arange(WORDS)
    seen = np.bincount([int(code @ made.texts[i][3:]) for i in range(MANY)], minlength=len(shares))
    accepted, drafted = (sum(row[name] for row in journal.steps) for name in ("accepted", "drafted"))
    assert 0.1 < accepted / drafted < 0.9  # both outcomes count
    assert _chi_square(seen, shares * MANY) > 1e-3


def _chi_square(seen: np.ndarray, expected: np.ndarray) -> float:
    """p-value, with outcomes too rare for the statistic taken together."""
    rare = expected < 5
    if rare.any():
        seen = np.append(seen[~rare], seen[rare].sum())
        expected = np.append(expected[~rare], expected[rare].sum())
    return float(chisquare(seen, expected).pvalue)


def _shares(target: Any, prompt: list[int], temperature: float) -> np.ndarray:
    """Probability of every text of ``WORDS`` tokens; the first token counts least in the index."""
    shares = np.ones(VOCABULARY**WORDS)
    for code in range(len(shares)):
        words = [code // VOCABULARY**i % VOCABULARY for i in range(WORDS)]
        text = prompt + words[:-1]
        with torch.inference_mode():
            laid = target.lay_out(Rows([0], [0], [len(text)], 0), list(range(len(prompt) - 1, len(text))))
            p = (target.run(laid, torch.tensor(text)) / temperature).softmax(-1)
        shares[code] = p.gather(1, torch.tensor(words)[:, None]).prod()
    return shares
