"""Published numbers, reproduced from what their authors would put in a scenario."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from sim.acceptance.build import expected_survival
from sim.acceptance.config import AcceptanceConfig
from sim.acceptance.fit import candidates as family
from sim.acceptance.fit.choose import fit
from sim.acceptance.fit.engine_logs import read_scrapes
from sim.acceptance.fit.evidence import Counted, Evidence, Request
from sim.acceptance.fit.heldout import Check, check_counts, lagged
from sim.acceptance.survey import rounds
from tests.acceptance.helpers import build, configure, published, rates

DATASETS = ["gsm8k", "cnn", "sharegpt", "instructcoder"]


@pytest.mark.parametrize(
    ("alpha", "tokens"),
    [(0.65, [1, 1.65, 2.07, 2.35, 2.53, 2.64, 2.72]), (0.8, [1, 1.8, 2.44, 2.95, 3.36, 3.69, 3.95, 4.16])],
)
def test_iid_expectations_are_those_in_the_literature(alpha: float, tokens: list[float]) -> None:
    """Tokens per round by depth, Leviathan et al. 2023 eq. 1 evaluated by hand to two digits."""
    process = build(7, process="iid", alpha=alpha)
    for depth, expected in enumerate(tokens):
        assert process.expected_tokens_per_round(depth) == pytest.approx(expected, abs=0.006)


def test_beta_rounds_rise_like_eagle3_on_chat() -> None:
    """Beta(3.99, 3.48), fitted on c1 and c2 alone, gives c3..c7 of DSpark Fig. 2 to within 0.02."""
    process = build(7, process="beta", a=3.99, b=3.48, per="round")
    tokens = np.array([process.expected_tokens_per_round(k) for k in range(8)])
    survival = np.concatenate([[1.0], np.diff(tokens)])
    conditional = survival[1:] / survival[:-1]
    assert conditional[2:] == pytest.approx([0.632, 0.668, 0.697, 0.721, 0.742], abs=6e-4)
    rows = published("dspark_paper_fig2_conditional_acceptance.csv")
    measured = [float(r["conditional_acceptance"]) for r in _chat_eagle3(rows)]
    assert conditional == pytest.approx(measured, abs=0.02)


def _chat_eagle3(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    return [r for r in rows if r["drafter"] == "EAGLE-3" and r["domain"] == "chat"]


@pytest.mark.parametrize("dataset", DATASETS)
@pytest.mark.parametrize("method", ["eagle", "ngram"])
def test_counters_at_depth_7_give_the_mean_at_depth_7(dataset: str, method: str) -> None:
    """vLLM's counters p_i fed as unconditional give 1 + sum p_i, the published mean but for its tails.

    The published mean trims the last round of each request at the end of the output, so it may
    fall short by at most 7 tokens a request and never exceeds; counters carry four digits.
    """
    row = _sdbench(dataset, method, 7)
    p = rates(row["per_position_acc(unconditional)"])
    tokens = build(7, process="per_position", unconditional=p).expected_tokens_per_round(7)
    assert tokens == pytest.approx(1 + sum(p), abs=1e-12)
    trimmed = (tokens - float(row["mean_tokens_per_step"])) * int(row["steps"]) / int(row["requests"])
    assert 0 <= trimmed < 1


@pytest.mark.parametrize(
    ("dataset", "deviation"),
    [("gsm8k", -0.012), ("cnn", -0.023), ("sharegpt", -0.037), ("instructcoder", -0.054)],
)
def test_counters_at_depth_7_understate_depth_3(dataset: str, deviation: float) -> None:
    """Per-position rates belong to their depth: at k = 3, EAGLE rates of k = 7 fall 1 to 5 % short."""
    at7 = rates(_sdbench(dataset, "eagle", 7)["per_position_acc(unconditional)"])
    at3 = rates(_sdbench(dataset, "eagle", 3)["per_position_acc(unconditional)"])
    tokens = build(7, process="per_position", unconditional=at7).expected_tokens_per_round(3)
    assert tokens / (1 + sum(at3)) - 1 == pytest.approx(deviation, abs=0.001)


def _sdbench(dataset: str, method: str, k: int) -> dict[str, str]:
    rows = published("sdbench_trace_acceptance_by_k.csv")
    return next(r for r in rows if (r["dataset"], r["method"], r["k"]) == (dataset, method, str(k)))


@pytest.mark.parametrize("drafter", ["DFlash", "DSpark"])
@pytest.mark.parametrize("domain", ["math", "code", "chat"])
def test_conditional_rates_of_dspark_figure_2_give_its_figure_4(drafter: str, domain: str) -> None:
    """Rates c_1..c_7 (Fig. 2) give the accepted length at k = 7 (Fig. 4) to within 2 %."""
    figure2 = published("dspark_paper_fig2_conditional_acceptance.csv")
    figure4 = published("dspark_paper_fig4_length_and_latency.csv")
    c = [
        float(r["conditional_acceptance"])
        for r in figure2
        if (r["drafter"], r["domain"]) == (drafter, domain)
    ]
    name = "DSpark-markov" if drafter == "DSpark" else drafter
    length = next(
        float(r["value"]) for r in figure4 if (r["panel"], r["drafter"], r["k"]) == (domain, name, "7")
    )
    process = build(7, process="per_position", conditional=c)
    assert process.expected_tokens_per_round(7) == pytest.approx(length, rel=0.02)


def test_mean_length_gives_back_the_published_lengths() -> None:
    """The A100 study's acceptance lengths (EAGLE-3, k = 5) survive the round trip through alpha."""
    for row in published("a100_eagle3_per_position_acceptance.csv")[:20]:
        tau, depth = float(row["tau_from_counters"]), int(row["k"])
        process = build(depth, process="mean_length", acceptance_length=tau, depth=depth)
        assert process.expected_tokens_per_round(depth) == pytest.approx(tau, abs=1e-9)


# -- fits that predict what they have not seen -----------------------------------------------------


def tokens(config: AcceptanceConfig, depth: int) -> float:
    """Tokens per round that a process expects."""
    return float(1 + expected_survival(config, depth).sum())


def left_out(candidate: family.Candidate, groups: Sequence[Counted]) -> list[Check]:
    """Each depth predicted from the others."""
    return check_counts(lambda some, positions: family.fit_counts(candidate, some, positions), groups)


def _figure2(drafter: str, domain: str) -> tuple[np.ndarray, Counted]:
    rows = published("dspark_paper_fig2_conditional_acceptance.csv")
    found = [r for r in rows if (r["drafter"], r["domain"]) == (drafter, domain)]
    conditional = np.array([float(r["conditional_acceptance"]) for r in found])
    survival = np.cumprod(conditional)
    return conditional, Counted(len(survival), 1 + float(survival.sum()), tuple(survival.tolist()))


@pytest.mark.parametrize(("domain", "off"), [("chat", 0.015), ("math", 0.02), ("code", 0.015)])
def test_two_positions_of_eagle3_give_the_other_five(domain: str, off: float) -> None:
    """DSpark Fig. 2: a Beta rate per round, fitted to c1 and c2, predicts c3..c7."""
    conditional, counts = _figure2("EAGLE-3", domain)
    survival = expected_survival(family.fit_counts(family.BETA[0], [counts], 2), 7)
    predicted = survival[1:] / survival[:-1]
    assert predicted[1:] == pytest.approx(conditional[2:], abs=off)


@pytest.mark.parametrize("domain", ["math", "code", "chat"])
@pytest.mark.parametrize("drafter", ["DFlash", "DSpark"])
def test_block_drafters_fall_with_position_where_eagle3_rises(drafter: str, domain: str) -> None:
    """DSpark Fig. 2: a falling factor fits seven positions to 0.7 % of tokens per round.

    From the first four positions alone it misses by up to 3.5 % (DFlash), as its rates fall at once
    and then no more.
    """
    conditional, counts = _figure2(drafter, domain)
    whole: Any = family.fit_counts(family.IID[1], [counts])
    assert tokens(whole, 7) == pytest.approx(counts.tokens_per_round, rel=0.007)
    if conditional[1] < conditional[0]:
        assert whole.depth_decay < 1
    half = family.fit_counts(family.IID[1], [counts], 4)
    assert tokens(half, 7) == pytest.approx(counts.tokens_per_round, rel=0.036)


@pytest.mark.parametrize("domain", ["math", "code", "chat"])
@pytest.mark.parametrize("drafter", ["DSpark-markov", "DFlash"])
def test_accepted_length_at_a_depth_left_out(drafter: str, domain: str) -> None:
    """DSpark Fig. 4: k of 3, 7, 11, 15 left out in turn: markov with depth_decay is within 3 %.

    But for DFlash on chat at k = 3, which is 4.9 % off. iid with depth_decay is within 3 % between
    the depths, up to 3.6 % off at 15 and 5.1 % at 3. Four points and drafters of their own for each
    k make this the shape of a curve, no more.
    """
    rows = published("dspark_paper_fig4_length_and_latency.csv")
    found = [
        (int(r["k"]), float(r["value"])) for r in rows if (r["panel"], r["drafter"]) == (domain, drafter)
    ]
    groups = [Counted(k, length) for k, length in found]
    assert [k for k, _ in found] == [3, 7, 11, 15]
    misses = [abs(check.error) for check in left_out(family.MARKOV[1], groups)]
    assert max(misses) < (0.05 if (drafter, domain) == ("DFlash", "chat") else 0.03)
    assert max(misses[1:]) < 0.03
    falling = [abs(check.error) for check in left_out(family.IID[1], groups)]
    assert max(falling[1:3]) < 0.03
    assert max(falling) < 0.052


def _by_depth(dataset: str, method: str) -> dict[int, Counted]:
    rows = published("sdbench_trace_acceptance_by_k.csv")
    found = {}
    for r in rows:
        if (r["dataset"], r["method"]) == (dataset, method):
            p = rates(r["per_position_acc(unconditional)"])
            found[int(r["k"])] = Counted(len(p), 1 + sum(p), tuple(p), float(r["steps"]))
    return found


@pytest.mark.parametrize(("method", "off"), [("eagle", 0.016), ("ngram", 0.007)])
@pytest.mark.parametrize("dataset", ["cnn", "instructcoder"])
def test_a_depth_of_the_traces_left_out(dataset: str, method: str, off: float) -> None:
    """SpecDecode-Bench, k of 1, 2, 3, 5, 7, 10 left out in turn: stretches predict it to 1.6 %."""
    groups = list(_by_depth(dataset, method).values())
    assert max(abs(check.error) for check in left_out(family.MARKOV[1], groups)) < off


@pytest.mark.parametrize(("method", "off", "as_counted"), [("eagle", 0.03, 0.065), ("ngram", 0.015, 0.18)])
@pytest.mark.parametrize("dataset", DATASETS)
def test_counters_of_one_depth_hold_at_others(
    dataset: str, method: str, off: float, as_counted: float
) -> None:
    """Counted at k = 7 alone: other depths to 3 % and 1.5 %; the rates as they are miss by up to 18 %."""
    by_depth = _by_depth(dataset, method)
    for candidate in (family.MARKOV[0], family.BETA_PER_REQUEST):
        found = family.fit_counts(candidate, [by_depth[7]])
        for depth, group in by_depth.items():
            assert tokens(found, depth) == pytest.approx(group.tokens_per_round, rel=off)
    plain = family.per_position(by_depth[7])
    misses = [abs(tokens(plain, k) / by_depth[k].tokens_per_round - 1) for k in by_depth if k < 7]
    assert 0.02 < max(misses) <= as_counted + 0.002


def test_an_mtp_head_counted_at_depth_8_tells_depth_1() -> None:
    """vLLM PR 48892 (GSM8K, greedy, 2026-08-03): 1.834 tokens at k = 1, where rates of k = 8 say 1.762."""
    p = (0.7617, 0.6158, 0.5125, 0.4243, 0.3640, 0.3094, 0.2722, 0.2365)
    found = fit(Evidence("vllm-bench", counted=(Counted(8, 1 + sum(p), p, 11043),)))
    assert tokens(found.chosen.config, 1) == pytest.approx(1.8339, rel=0.012)
    assert tokens(found.chosen.config, 8) == pytest.approx(4.50, rel=0.005)


def test_golden_lengths_at_a_depth_left_out() -> None:
    """InferenceX, 14 curves of k = 1..8, each k predicted from the others by a falling rate.

    101 of 112 are within 3 %. The rest: DSpark on DeepSeek-V4-Pro at k = 6 and 8 (its length falls
    from k = 7 on, which no acceptance can do), and nine points of six curves that are themselves
    uneven (80 prompts; four of the six fall from one k to a deeper one), the worst 6.4 %.
    """
    curves: dict[tuple[str, str], list[Counted]] = {}
    for row in published("inferencex_golden_acceptance_length_by_k.csv"):
        counts = Counted(int(row["k"]), float(row["acceptance_length"]))
        curves.setdefault((row["curve"], row["thinking"]), []).append(counts)
    errors = {curve: [c.error for c in left_out(family.IID[1], groups)] for curve, groups in curves.items()}
    falls = errors.pop(("dsv4-pro-0813-dspark", "thinking_on"))
    every = np.abs(np.concatenate([*errors.values(), falls]))
    assert len(every) == 112
    assert (every < 0.03).sum() == 101
    assert max(np.abs(one).max() for one in errors.values()) < 0.065
    assert falls[7] == pytest.approx(0.104, abs=0.002)


@pytest.mark.parametrize("dataset", ["cnn", "instructcoder"])
@pytest.mark.parametrize("method", ["eagle", "ngram"])
def test_half_of_the_requests_tell_the_spread_of_the_others(dataset: str, method: str) -> None:
    """SpecDecode-Bench at k = 3, from each request's sums: deviation within 21 %, tails within 6 %.

    One rate for all has 0.2 to 0.7 of the deviation. ShareGPT is left out: its halves differ (5th
    percentile 1.52 and 1.80), and fits of one miss the other by 9 %.
    """
    requests = []
    for row in published("sdbench_trace_per_request_k3.csv"):
        tokens, steps = int(row["gen_len"]), int(row["steps_at_k3"])
        if (row["dataset"], row["method"]) == (dataset, method) and tokens <= 4000:
            requests.append(Request(3, steps, min(max(0, tokens - steps), 3 * steps)))
    found = fit(Evidence("requests", requests=tuple(requests)))
    assert found.chosen.name == "beta per request"
    checks = {check.what: check for check in found.chosen.checks}
    assert abs(checks["deviation over requests"].error) < 0.21
    assert abs(checks["request p5"].error) < 0.06
    assert abs(checks["request p95"].error) < 0.03
    alike = {check.what: check for check in found.tried[0].checks}["deviation over requests"]
    assert alike.predicted < 0.71 * alike.observed


# Correlation of accepted drafts 1, 2, 5 and 10 rounds apart within requests, k = 7, demeaned; tokens
# per round; survival S1..S7: computed from SpecDecode-Bench's traces (2fdccbd), outputs over 4,000
# tokens left out. Mean, spread and correlation were fitted to the four lags and the tokens alone.
WITHIN = [
    (
        "sharegpt",
        (0.6396, 0.7599, 0.9798),
        [0.19, 0.16, 0.12, 0.10],
        [0.606, 0.376, 0.245, 0.169, 0.122, 0.091, 0.067],
    ),
    (
        "cnn",
        (0.6393, 0.526, 0.9146),
        [0.10, 0.05, 0.03, 0.00],
        [0.630, 0.393, 0.251, 0.166, 0.113, 0.082, 0.059],
    ),
    (
        "code",
        (0.7299, 0.8877, 0.9771),
        [0.25, 0.20, 0.14, 0.11],
        [0.690, 0.504, 0.363, 0.269, 0.208, 0.164, 0.129],
    ),
    (
        "gsm8k",
        (0.6483, 0.3007, 0.9953),
        [0.05, 0.00, 0.01, -0.01],
        [0.663, 0.428, 0.271, 0.177, 0.110, 0.071, 0.046],
    ),
]


@pytest.mark.parametrize(("name", "numbers", "lags", "survival"), WITHIN, ids=[each[0] for each in WITHIN])
def test_wandering_difficulty_has_the_published_correlation(
    name: str, numbers: tuple[float, float, float], lags: list[float], survival: list[float]
) -> None:
    """Three numbers reproduce four lags to 0.04, and survival that was not fitted to 0.035."""
    mean, spread, correlation = numbers
    config: dict[str, Any] = {"process": "latent", "mean": mean, "spread": spread, "correlation": correlation}
    process = build(7, **config)
    accepted = [rounds(process.path(request, 1, 600).run, 7) for request in range(120)]
    assert [lagged(accepted, lag) for lag in (1, 2, 5, 10)] == pytest.approx(lags, abs=0.04)
    found = expected_survival(configure(**config), 7)
    assert found == pytest.approx(survival, abs=0.036)
    assert 1 + found.sum() == pytest.approx(1 + sum(survival), rel=0.025)


def test_bursts_of_a_look_up_drafter_have_the_published_correlation() -> None:
    """n-gram on code: 0.56, 0.33, 0.20, 0.03, by log odds that swing between never and always."""
    process = build(7, process="latent", mean=0.6313, spread=3.5065, correlation=0.92)
    accepted = [rounds(process.path(request, 1, 600).run, 7) for request in range(120)]
    assert [lagged(accepted, lag) for lag in (1, 2, 5, 10)] == pytest.approx(
        [0.56, 0.33, 0.20, 0.03], abs=0.06
    )


def test_lengths_that_fade_with_context() -> None:
    """EAGLE-3 on LongBench v2 by context (speculators PR 684, 2026-07-02; depth not stated, 3 assumed).

    Fitted to every other context, halving beyond a start predicts the others to 13 %, half of them
    to 4 %: the true fall is straighter. Without decay they are missed by up to 34 %.
    """
    lengths = [2.295, 2.040, 1.863, 1.687, 1.400, 1.289, 1.161, 1.090, 1.092, 1.084]
    groups = [Counted(3, length, context_tokens=2000 * i) for i, length in enumerate(lengths, start=1)]
    found = {each.name: family.fit_counts(each, groups[::2]) for each in (family.FADING, family.IID[0])}
    misses = {
        name: np.abs(
            [family.survival_at(config, 3, g.context_tokens).sum() + 1 for g in groups[1::2]]
            / np.array(lengths[1::2])
            - 1
        )
        for name, config in found.items()
    }
    assert misses["iid, decay with context"].max() < 0.13
    assert np.median(misses["iid, decay with context"]) < 0.04
    assert misses["iid"].max() > 0.25


def test_published_counters_read_as_a_scrape() -> None:
    """vLLM 0.12 counters (Altria study): tokens per round as published, look-up rounds told apart."""
    shares: dict[str, list[float]] = {}
    for row in published("altria_vllm012_prom_counters.csv"):
        if row["drafts"]:
            counts, per_position = float(row["drafts"]), rates(row["per_position"])
            lines = [
                f"vllm:generation_tokens_total {row['generation_tokens']}",
                f"vllm:request_success_total {row['requests']}",
                f"vllm:spec_decode_num_drafts_total {row['drafts']}",
                f"vllm:spec_decode_num_draft_tokens_total {row['draft_tokens']}",
                f"vllm:spec_decode_num_accepted_tokens_total {row['accepted_tokens']}",
                *(
                    f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{position="{i}"}} {p * counts}'
                    for i, p in enumerate(per_position)
                ),
            ]
            seen = read_scrapes([("scrape", "\n".join(lines))], None)
            share = counts / seen.counted[0].rounds
            length = 1 + (seen.counted[0].tokens_per_round - 1) / share
            assert length == pytest.approx(float(row["tau"]), abs=2e-3)
            shares.setdefault(row["method"], []).append(share)
    assert all(share == 1 for share in shares["eagle3"])
    assert all(0.05 < share < 0.5 for share in shares["ngram"])
