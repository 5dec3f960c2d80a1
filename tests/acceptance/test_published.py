"""Published numbers, reproduced from what their authors would put in a scenario."""

from __future__ import annotations

import numpy as np
import pytest

from tests.acceptance.helpers import build, published, rates

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
