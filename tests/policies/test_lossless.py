"""Which rules leave the output's distribution alone: exact enumeration, and what may not be looked at.

Speculative sampling keeps the target's distribution if whether a draft is verified does not depend on
the draft itself (DSpark, arXiv 2607.05147, section 3.2.2 and appendix A). A confidence that is known
before token j is drawn depends on tokens before j alone, so the event "sequence r verifies at least j
drafts" must not depend on confidences behind the j-th. Both are tested: the second on random batches,
the distribution itself on two-token vocabularies, every draft, acceptance and continuation enumerated
in fractions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from itertools import product
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.cost.step_cost import StepCost
from sim.policies.adaserve import AdaServe
from sim.policies.base import Claims, Int64, Policy
from sim.policies.budget import expected_tokens, spend, survival
from sim.policies.dcut import DCut
from sim.policies.dspark import DSpark
from sim.policies.tetris import Tetris
from sim.policies.vllm_adaptive import VllmAdaptive
from tests.policies.curves import claims, confidences, curve_cost, decide

DEPTH = 3
LOSSLESS: dict[str, Callable[[int], Policy]] = {
    "dspark, algorithm 1": lambda depth: DSpark(depth, "algorithm_1", 0, 0, 0.0),
    "dspark, production": lambda depth: DSpark(depth, "production", 0, 0, 0.0),
    "dspark, production, with a gain": lambda depth: DSpark(depth, "production", 0, 0, 0.3),
    "dspark, with first drafts": lambda depth: DSpark(depth, "algorithm_1", 0, 1, 0.0),
    "vllm_adaptive": lambda depth: VllmAdaptive(depth, 0, 256),
    "tetris": lambda depth: Tetris(depth, 1, None),
    "dcut, fixed ratio": lambda depth: DCut(depth, 0.4, False, 0),
    "dcut, fixed ratio, with first drafts": lambda depth: DCut(depth, 0.7, True, 0),
    "adaserve": lambda depth: AdaServe(depth, depth, budget=6),
}
NS = st.lists(st.integers(1, 9).map(float), min_size=12, max_size=12)
Word = tuple[int, ...]
Law = dict[Word, Fraction]


def progress(sequences: int) -> dict[str, Int64]:
    """Sequences that are the later behind their TPOT limit, the earlier they stand; the last has none."""
    late = 2 * 10**6 * np.arange(sequences)[::-1]
    limit = np.where(late > 0, 10**6, 0)
    return {
        "output_tokens": np.full(sequences, 2),
        "since_first_ns": late + 10**6,
        "tpot_limit_ns": limit,
    }


def lengths(make: Callable[[int], Policy], cost: StepCost, past: list[Claims], now: Claims) -> Int64:
    """Depths of the last step after the steps in ``past``."""
    policy = make(now.shape[1])
    for earlier in past:
        decide(policy, cost, earlier, **progress(len(now)))
    return decide(policy, cost, now, **progress(len(now)))


# -- what may not be looked at -------------------------------------------------------------------


@pytest.mark.parametrize("rule", LOSSLESS)
@given(confidences(2, DEPTH), confidences(2, DEPTH), st.integers(1, DEPTH - 1), NS)
def test_no_confidence_behind_a_draft_decides_about_it(
    rule: str, past: Claims, now: Claims, kept: int, ns: list[float]
) -> None:
    """Behind its j-th draft a sequence is without hope, or certain; what it verifies up to j stays."""
    cost = curve_cost(ns)
    for row in (0, 1):
        hopeless, certain = now.copy(), now.copy()
        hopeless[row, kept:], certain[row, kept:] = 0, 1
        chosen = [lengths(LOSSLESS[rule], cost, [past, past], each)[row] for each in (hopeless, certain)]
        assert min(chosen[0], kept) == min(chosen[1], kept)


def retrospective(confidence: Claims, cost: StepCost) -> Int64:
    """The leak: the best number of drafts by the confidences of the very drafts at hand."""
    survive = survival(confidence)
    tokens = expected_tokens(survive)
    ns = cost.target_ns(len(survive) + np.arange(len(tokens)), 1, 0.0)
    return spend(survive, int((tokens / ns).argmax()))


APPENDIX_A = curve_cost([1 / 1.0, 1 / 0.5, 1 / 0.45])
"""Steps per second 1, 0.5 and 0.45 with one, two and three tokens."""


def test_a_retrospective_argmax_looks_at_what_comes_after() -> None:
    """DSpark's appendix A: the first draft is verified or not by what the second promises."""
    assert retrospective(claims([[0.8, 0.9]]), APPENDIX_A).tolist() == [2]
    assert retrospective(claims([[0.8, 0.0]]), APPENDIX_A).tolist() == [0]
    for promise in (0.9, 0.0):
        rule = LOSSLESS["dspark, algorithm 1"]
        assert lengths(rule, APPENDIX_A, [], claims([[0.8, promise]])).tolist() == [0]


SKIP_ONE = curve_cost([1.0, 1.0, 1.0, 1.0, 9.0, 1.6])
"""With two sequences, 2 drafts cost nothing, 3 far too much and 4 a little."""


def test_dcut_s_own_choice_of_the_ratio_looks_at_what_comes_after() -> None:
    """The second sequence verifies its first draft because the second promises enough for all four."""
    auto = DCut(2, "auto", False, 0)
    assert decide(auto, SKIP_ONE, claims([[0.95, 0.99], [0.8, 0.9]])).tolist() == [2, 2]
    assert decide(auto, SKIP_ONE, claims([[0.95, 0.99], [0.8, 0.0]])).tolist() == [2, 0]


# -- the distribution itself ---------------------------------------------------------------------


class Speaker:
    """Chances of the two tokens after every word, in fractions."""

    def __init__(self, first: str, after: dict[int, str]) -> None:
        self.chances: dict[Word, Fraction] = {(): Fraction(first)}
        self.chances |= {(token,): Fraction(chance) for token, chance in after.items()}

    def chance(self, word: Word, token: int) -> Fraction:
        """Chance of ``token`` after ``word``; words are told apart by their last token."""
        zero = self.chances[word[-1:]]
        return zero if token == 0 else 1 - zero

    def law(self, word: Word, length: int) -> Law:
        """How ``word`` goes on up to ``length`` tokens."""
        return {
            word + more: prod(
                (self.chance(word + more[:i], token) for i, token in enumerate(more)), start=Fraction(1)
            )
            for more in product((0, 1), repeat=length - len(word))
        }


TARGET = Speaker("0.7", {0: "0.6", 1: "0.2"})
DRAFTER = Speaker("0.5", {0: "0.5", 1: "0.9"})


def agreement(word: Word) -> float:
    """Chance that the next draft is accepted: what a perfect confidence head would say."""
    return float(sum(min(TARGET.chance(word, t), DRAFTER.chance(word, t)) for t in (0, 1)))


def spoken(draft: Word, depth: int, length: int, drafter: Speaker = DRAFTER) -> Law:
    """Law of what is emitted and follows, with ``depth`` tokens of ``draft`` verified."""
    law: Law = defaultdict(Fraction)
    weight = Fraction(1)
    for j in range(depth):
        word, token = draft[:j], draft[j]
        ratio = TARGET.chance(word, token) / drafter.chance(word, token)
        short = {t: max(TARGET.chance(word, t) - drafter.chance(word, t), Fraction(0)) for t in (0, 1)}
        rejected, missing = weight * (1 - min(ratio, Fraction(1))), sum(short.values())
        for t in (0, 1):
            if rejected and short[t]:
                share = rejected * short[t] / missing
                _add(law, share, TARGET.law((*word, t), length))
        weight *= min(ratio, Fraction(1))
    _add(law, weight, TARGET.law(draft[:depth], length))
    return dict(law)


def _add(law: Law, weight: Fraction, other: Law) -> None:
    for word, chance in other.items():
        law[word] += weight * chance


def output_law(
    choose: Callable[[Claims], Int64],
    rows: int,
    confidence: Callable[[int, Word], list[float]],
    depth: int = 2,
    drafter: Speaker = DRAFTER,
) -> Law:
    """Joint law of the first ``depth + 1`` tokens of all sequences, as one word."""
    law: Law = defaultdict(Fraction)
    for drafts in product(product((0, 1), repeat=depth), repeat=rows):
        drawn = prod((drafter.law((), depth)[draft] for draft in drafts), start=Fraction(1))
        if not drawn:
            continue
        chosen = choose(claims([confidence(row, draft) for row, draft in enumerate(drafts)]))
        laws = [spoken(draft, int(k), depth + 1, drafter) for draft, k in zip(drafts, chosen, strict=True)]
        for words in product(*(each.items() for each in laws)):
            law[sum((word for word, _ in words), ())] += drawn * prod(chance for _, chance in words)
    return dict(law)


def target_law(rows: int, depth: int = 2) -> Law:
    """What the target alone would say."""
    laws = [TARGET.law((), depth + 1)] * rows
    return {
        sum((word for word, _ in words), ()): prod((chance for _, chance in words), start=Fraction(1))
        for words in product(*(each.items() for each in laws))
    }


def of_the_head(row: int, draft: Word) -> list[float]:
    """Confidences from the tokens before each draft; those of every second sequence are lower."""
    return [(1 - 0.3 * (row % 2)) * agreement(draft[:j]) for j in range(len(draft))]


def of_appendix_a(row: int, draft: Word) -> list[float]:
    """0.8, then 0.9 after the one token and 0 after the other."""
    return [0.8, 0.9 if draft[0] == 0 else 0.0]


def first_token(law: Law) -> Fraction:
    """Chance of the token 0 at the start."""
    return sum((chance for word, chance in law.items() if word[0] == 0), Fraction(0))


@pytest.mark.parametrize("past", [(), (0.05, 0.9)], ids=["new requests", "after three steps"])
@pytest.mark.parametrize("confidence", [of_the_head, of_appendix_a])
@pytest.mark.parametrize("rule", LOSSLESS)
def test_lossless_rules_speak_as_the_target_does(
    rule: str, confidence: Callable[[int, Word], list[float]], past: tuple[float, ...]
) -> None:
    """Two sequences, two drafts each, jointly and exactly."""
    earlier = [np.full((2, 2), chance, dtype=np.float32) for chance in (*past, *past)]
    for cost in (SKIP_ONE, curve_cost([1.0, 1.0, 1.3, 1.6, 1.9, 2.2])):
        law = output_law(partial(lengths, LOSSLESS[rule], cost, earlier), 2, confidence)
        assert law == target_law(2)


def test_the_retrospective_argmax_says_the_likely_token_too_often() -> None:
    """Appendix A: 0.85 instead of 0.7."""
    law = output_law(lambda now: retrospective(now, APPENDIX_A), 1, of_appendix_a)
    assert first_token(law) == Fraction("0.85")
    assert first_token(target_law(1)) == Fraction("0.7")


def test_a_budget_from_the_past_says_it_as_often_as_the_target() -> None:
    """The same argmax over the same curve, by the survivals of earlier steps."""
    for rule in ("dspark, production", "vllm_adaptive"):
        for promise in (0.0, 0.9):
            past = [claims([[0.8, promise]])] * 2
            law = output_law(partial(lengths, LOSSLESS[rule], APPENDIX_A, past), 1, of_appendix_a)
            assert law == target_law(1)


def test_dcut_s_own_choice_of_the_ratio_is_not_lossless() -> None:
    """The second sequence's first token is verified after one draft only: 0.5 + 0.5 * 0.7."""

    def confidence(row: int, draft: Word) -> list[float]:
        return of_appendix_a(row, draft) if row else [0.95, 0.99]

    law = output_law(lambda now: decide(DCut(2, "auto", False, 0), SKIP_ONE, now), 2, confidence)
    second = sum((chance for word, chance in law.items() if word[3] == 0), Fraction(0))
    assert second == Fraction("0.85")


@pytest.mark.parametrize("rule", ["tetris", "dcut, fixed ratio", "dspark, algorithm 1"])
def test_ranking_by_the_token_drawn_is_not_lossless(rule: str) -> None:
    """TETRIS's and D-Cut's own confidence is the chance of the drawn token, which decides about itself."""
    skewed = Speaker("0.9", {0: "0.9", 1: "0.9"})

    def drawn(row: int, draft: Word) -> list[float]:
        if row == 0:
            return [0.5, 0.5]
        return [float(skewed.chance(draft[:j], token)) for j, token in enumerate(draft)]

    cost = curve_cost([1.0, 1.0, 1.0, 1.05, 9.0, 9.0])
    law = output_law(lambda now: lengths(LOSSLESS[rule], cost, [], now), 2, drawn, drafter=skewed)
    assert law != target_law(2)


def test_one_draft_in_all_for_the_likelier_token_drawn_by_hand() -> None:
    """0.9 * 7/9 (drawn, verified, kept) + 0.1 * 0.7 (drawn, not verified) = 0.77, for a target of 0.7."""
    skewed = Speaker("0.9", {0: "0.9", 1: "0.9"})

    def drawn(row: int, draft: Word) -> list[float]:
        return [float(skewed.chance((), draft[0]))] if row else [0.5]

    rule = lambda depth: Tetris(depth, 1, capacity=1)  # noqa: E731
    law = output_law(lambda now: lengths(rule, APPENDIX_A, [], now), 2, drawn, 1, skewed)
    second = sum((chance for word, chance in law.items() if word[2] == 0), Fraction(0))
    assert second == Fraction("0.77")


def test_drafts_that_are_not_drawn_leak_nothing() -> None:
    """A drafter that always says the same: then even the retrospective argmax is lossless."""
    greedy = Speaker("1", {0: "1", 1: "1"})
    law = output_law(lambda now: retrospective(now, APPENDIX_A), 1, of_appendix_a, drafter=greedy)
    assert law == {word: chance for word, chance in target_law(1).items() if chance}
