"""A static confidence threshold trades verified tokens for acceptance as DSpark's paper measured.

DSpark (arXiv 2607.05147), Fig. 5: Qwen3-4B, blocks of 7, the draft cut before the first token whose raw
confidence is below a threshold, which is what ``p_min`` verifies (the authors' code,
deepspec/eval/dspark/draft_ops.py, does the same). Nothing here is fitted to the sweep but its first point:

- acceptance by position: Fig. 2 for the domain, its log odds moved together until seven drafts give the
  length at threshold 0. (Those lengths are Table 1's of GSM8K, HumanEval and MT-Bench, one set a domain,
  while Fig. 2 averages three.)
- the claims' AUC: 0.818, Fig. 6 at position 1, where survival is the first draft's own acceptance.
- their temperature: 0.65, at which they are as far off as the raw head there, by 5.7 % (Fig. 6, Alpaca).
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import expit, logit

from sim.acceptance.base import AcceptanceProcess
from sim.cost.step_cost import StepCost
from sim.policies.p_min import PMin
from tests.acceptance.helpers import build, published
from tests.acceptance.test_confidence import calibration_error
from tests.engine.modelled import linear_profile, view

DEPTH, TOKENS, REQUESTS = 7, 3000, 4
AUC, RAW, FAIR = 0.818, 0.65, 1.0
PROFILE = linear_profile(draft=None)
COST = StepCost(PROFILE, None, 64)
DOMAINS = ("math", "code", "chat")


def rates(domain: str) -> np.ndarray:
    """Conditional acceptance of DSpark's drafts by position."""
    rows = published("dspark_paper_fig2_conditional_acceptance.csv")
    mine = [row for row in rows if (row["drafter"], row["domain"]) == ("DSpark", domain)]
    return np.array([float(row["conditional_acceptance"]) for row in mine])


def sweep(domain: str) -> dict[float, tuple[float, float]]:
    """Threshold -> accepted and verified tokens per step, as published."""
    rows = published("dspark_paper_fig5_confidence_threshold.csv")
    columns = ("threshold", "accepted_tokens_per_step", "verified_tokens_per_step")
    mine = [[float(row[column]) for column in columns] for row in rows if row["domain"] == domain]
    return {threshold: (accepted, verified) for threshold, accepted, verified in mine}


def process(domain: str, temperature: float) -> AcceptanceProcess:
    """The domain's acceptance at the published length, with claims of the published quality."""
    odds, length = logit(rates(domain)), sweep(domain)[0.0][0]
    shift = brentq(lambda s: 1 + np.cumprod(expit(odds + s)).sum() - length, -2, 2)
    conditional = expit(odds + shift).tolist()
    confidence = {"auc": AUC, "temperature": temperature}
    return build(DEPTH, process="per_position", conditional=conditional, confidence=confidence)


def simulated(drafts: AcceptanceProcess, threshold: float) -> tuple[float, float]:
    """Accepted and verified tokens per step, bonus and anchor included."""
    policy, steps, accepted, verified = PMin(DEPTH, threshold), 0, 0, 0
    now = view(COST, TOKENS, 0)
    for request in range(REQUESTS):
        path = drafts.path(request, 1, TOKENS)
        kept = policy.verify_depths(now, DEPTH, path.confidence())
        taken, at = np.minimum(path.run[:], kept).tolist(), 0
        while at < TOKENS:
            steps, verified, accepted = (
                steps + 1,
                verified + int(np.max(kept[at])) + 1,
                accepted + taken[at] + 1,
            )  # type: ignore[index]
            at += taken[at] + 1
    return accepted / steps, verified / steps


def errors(domain: str, temperature: float) -> dict[float, tuple[float, float]]:
    """Threshold -> relative errors of accepted and verified tokens per step."""
    drafts = process(domain, temperature)
    found = {threshold: simulated(drafts, threshold) for threshold in sweep(domain)}
    truth = sweep(domain)
    return {t: (a / truth[t][0] - 1, v / truth[t][1] - 1) for t, (a, v) in found.items()}


def test_the_temperature_makes_claims_as_wrong_as_the_raw_head() -> None:
    """Expected calibration error at position 1 on chat: 5.7 % (Fig. 6)."""
    confidence = {"auc": AUC, "temperature": RAW}
    drafts = build(DEPTH, process="per_position", conditional=rates("chat").tolist(), confidence=confidence)
    paths = [drafts.path(request, 1, 10_000) for request in range(4)]
    claims = np.concatenate([path.confidence()[:, 0] for path in paths]).astype(np.float64)
    passed = np.concatenate([path.run[:] for path in paths]) > 0
    assert calibration_error(claims, passed.astype(np.float64)) == pytest.approx(0.057, abs=0.006)


@pytest.mark.parametrize("domain", DOMAINS)
def test_raw_claims_trade_verification_for_acceptance_as_published(domain: str) -> None:
    """Over all thresholds from 0 to 0.9: accepted within 10 %, verified within 16 %."""
    found = errors(domain, RAW)
    assert {t: e for t, e in found.items() if abs(e[0]) > 0.10 or abs(e[1]) > 0.16} == {}


@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("temperature", [RAW, FAIR])
def test_thresholds_up_to_one_half_are_within_6_percent(domain: str, temperature: float) -> None:
    """At 0 and 0.5, where a temperature does not move the cut."""
    found = errors(domain, temperature)
    assert max(abs(error) for t in (0.0, 0.5) for error in found[t]) < 0.06


@pytest.mark.parametrize("domain", DOMAINS)
def test_calibrated_claims_keep_too_few_drafts_above_a_high_threshold(domain: str) -> None:
    """A known miss: at 0.9 they verify a fifth to a third fewer than the paper's raw head did."""
    accepted, verified = errors(domain, FAIR)[0.9]
    assert -0.36 < verified < -0.2
    assert -0.36 < accepted < -0.2
