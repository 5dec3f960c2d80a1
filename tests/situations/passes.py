"""U05 and U07: whether drafting can pay at all, from the times of a target's and a drafter's passes alone."""

from __future__ import annotations

from typing import Final

from tests.situations.case import Case, Check, three, within
from tests.situations.replay import ratios, value

# -- U05 -----------------------------------------------------------------------------------------

WIDTHS_MS: Final = {1: 8.47, 2: 13.49, 3: 15.64, 5: 20.67, 8: 28.13}
"""Reported time of a verify pass by its width."""

BREAK_EVEN: Final = (1.59, 1.85, 2.44, 3.32)
DEPTHS05: Final = (1, 2, 4, 7)
SEEN05: Final = (0.7, 0.8)
TOKENS05: Final = 4.2


def u05() -> Case:
    """Every verified token opens further experts."""
    names = tuple(f"static(k={depth})" for depth in DEPTHS05)
    got = tuple(1 / ratios("u05-verify-widths", name, "tpot_mean_ms", ("base",))[0] for name in names)
    tokens = tuple(value("u05-verify-widths", name, "acceptance_length") for name in names)
    needed = tuple(t / ratio for t, ratio in zip(tokens, got, strict=True))
    seven = got[-1] * TOKENS05 / tokens[-1]
    left = tuple(TOKENS05 * WIDTHS_MS[1] / seen - WIDTHS_MS[8] for seen in SEEN05)
    return Case(
        "U05",
        "Can a draft of seven pay on a mixture of experts whose verify pass grows with every token?",
        "waybarrios/vllm-mlx PR 763: NemotronH 30B-A3B, one stream, block drafter, 3.20 of 7 drafts accepted",
        ("u05-verify-widths",),
        """Verify times by width as posted, drafting free: the speedups are what is left for a drafter to
        spend. Acceptance is one rate per draft that gives 4.2 tokens at depth 7; at other depths that is
        assumed.""",
        (
            ("depth", *map(str, DEPTHS05)),
            ("verify pass, ms", *(f"{WIDTHS_MS[depth + 1]:.2f}" for depth in DEPTHS05)),
            ("break-even tokens a round, reported times", *(f"{each:.2f}" for each in BREAK_EVEN)),
            ("simulated", *(f"{each:.2f}" for each in needed)),
            ("tokens a round", *(f"{each:.2f}" for each in tokens)),
            ("speedup before drafting", *three(got)),
        ),
        (
            Check("Break-even tokens come back to within 0.02.", within(needed, BREAK_EVEN, 0.02)),
            Check("Depth 7 at 4.2 tokens is 1.26 times as fast, before drafting.", abs(seven - 1.265) < 0.01),
            Check("Depth 4 is faster than depth 7, even if drafting is free.", got[2] > got[3]),
            Check(
                "Drafting and host work of 16 to 23 ms a round explain the reported 0.7 to 0.8.",
                [round(each) for each in sorted(left)] == [16, 23],
            ),
        ),
        """A dense model's verify pass is nearly flat at such widths; here eight tokens cost 3.3 steps, so a
        round must bring 3.3 tokens before the drafter has cost anything. The report's other speeds (0.83 to
        0.87 on code, 0.55 to 0.60 on prose at depth 4) come without tokens per round, so they are not
        replayed.""",
    )


# -- U07 -----------------------------------------------------------------------------------------

LOADS07: Final = ("TP 1", "TP 2", "TP 4", "TP 2, draft 1", "TP 4, draft 1")
TARGET_S: Final = (5.63, 3.60, 2.42)
WITH_S: Final = (4.62, 6.10, 6.23)
DRAFT_S: Final = (0.35, 1.30, 1.39)
HANDING_S: Final = 128 * (24.2 - 20.2) / 2000
"""Seconds of 128 steps at TP 2 that go into handing work to the other GPUs' processes (vLLM PR 3763)."""


def u07() -> Case:
    """A small drafter split over GPUs is slower than on one."""
    seen = tuple(with_s / without for with_s, without in zip(WITH_S, TARGET_S, strict=True))
    got = ratios("u07-draft-tp", "static(k=8)", "tpot_mean_ms", LOADS07)
    tokens = value("u07-draft-tp", "static(k=8)", "acceptance_length", LOADS07[0])
    inside = tuple((w * tokens - t) / 8 for w, t in zip(WITH_S[1:], TARGET_S[1:], strict=True))
    passes = tuple(seconds - HANDING_S for seconds in DRAFT_S[1:])
    return Case(
        "U07",
        "Should a small drafter be split over as many GPUs as its target?",
        "vLLM PR 4840, comment of 2024-05-20: opt-30b with opt-125m, 8 lookahead slots, A100s, TP 1, 2 and 4",
        ("u07-draft-tp",),
        """Passes from the two models run alone, over 128 output tokens of 8 sequences (defaults of vLLM's
        latency benchmark; only ratios matter). A verify pass takes what a plain step takes (assumed).
        At TP 2 and 4 a step of a model served alone holds 2.0 ms in which work is handed to the other GPUs'
        processes (vLLM PR 3763: 24.2 s against 20.2 s for 2,000 tokens at TP 2, A100); a round does that
        once, not for each of its passes, so the drafter's passes are shorter by it. Tokens a round fitted at
        TP 1; TP 2, TP 4 and drafters on one GPU are predicted.""",
        (
            ("time with over without", *LOADS07),
            ("reported", *three(seen), "", ""),
            ("simulated", *three(got)),
        ),
        (
            Check("TP 1 comes back to within 0.02.", abs(got[0] - seen[0]) < 0.02),
            Check("At TP 2 drafting takes over 1.5 times as long as not drafting.", got[1] > 1.5),
            Check("At TP 4 over 2 times.", got[2] > 2),
            Check(
                "TP 2 and TP 4 are within 10 % of the report.",
                all(abs(g / s - 1) < 0.1 for g, s in zip(got[1:3], seen[1:], strict=True)),
            ),
            Check(
                "With the drafter on one GPU TP 2 is 1.8 times as fast, TP 4 over twice.",
                1.8 < got[1] / got[3] < 1.95 and got[4] < got[2] / 2,
            ),
            Check("TP 4 then still loses: the target alone gains more from four GPUs.", got[4] > 1),
        ),
        f"""The reported runs leave {inside[0]:.2f} and {inside[1]:.2f} s for the drafter's passes, where
        opt-125m served alone takes {DRAFT_S[1]:.2f} and {DRAFT_S[2]:.2f} s, and {passes[0]:.2f} and
        {passes[1]:.2f} s without the handing. What is left is still three times the time on one GPU: a
        pass of a model this small hardly gets shorter by more ranks, and they have to be
        brought their inputs and their sums.""",
    )
