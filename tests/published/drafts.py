"""Case 7: tokens per round at a depth that the fit has not seen; no time is involved.

Everything is fitted by ``sim.acceptance.fit``, as ``leadline fit`` does. *Left out*: each depth of a
curve is predicted from its other depths by two numbers, a rate and its fall per position. *Two
positions*: a Beta rate per round, fitted to c1 and c2 alone, predicts the tokens of seven drafts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np

from sim.acceptance.build import expected_survival
from sim.acceptance.config import AcceptanceConfig
from sim.acceptance.fit import candidates as family
from sim.acceptance.fit.evidence import Counted
from sim.acceptance.fit.heldout import check_counts
from tests.published.judged import Account, Row, account, error_cell, percent
from tests.published.measure import read

LIMIT: Final = 0.03
DOMAINS: Final = ("math", "code", "chat")
DRAFTERS: Final = ("DSpark-markov", "DSpark-rnn", "DFlash")
DEPTHS: Final = (3, 7, 11, 15)


@cache
def figure4(groundtruth: Path) -> dict[tuple[str, str], tuple[Row, ...]]:
    """DSpark's Fig. 4 by drafter and domain: a row for each of ``DEPTHS``."""
    table = read(groundtruth / "dspark_paper_fig4_length_and_latency.csv")
    return {
        (drafter, domain): _left_out(
            Counted(int(row["k"]), float(row["value"]))
            for row in table
            if (row["drafter"], row["panel"]) == (drafter, domain)
        )
        for drafter in DRAFTERS
        for domain in DOMAINS
    }


@cache
def two_positions(groundtruth: Path) -> dict[str, Row]:
    """DSpark's Fig. 2, EAGLE-3 by domain: tokens of a round of seven drafts."""
    table = read(groundtruth / "dspark_paper_fig2_conditional_acceptance.csv")
    return {domain: _from_two([row for row in table if row["domain"] == domain]) for domain in DOMAINS}


def _from_two(table: list[dict[str, str]]) -> Row:
    rates = [float(row["conditional_acceptance"]) for row in table if row["drafter"] == "EAGLE-3"]
    survival = np.cumprod(rates)
    counts = Counted(len(rates), 1 + float(survival.sum()), tuple(survival.tolist()))
    fitted = family.fit_counts(family.BETA[0], [counts], 2)
    return Row(counts.tokens_per_round, float(1 + expected_survival(fitted, 7).sum()), LIMIT)


@cache
def golden(groundtruth: Path) -> dict[tuple[str, str], tuple[Row, ...]]:
    """InferenceX's golden lengths by curve and thinking: a row for each depth of 1 to 8."""
    curves: dict[tuple[str, str], list[Counted]] = {}
    for row in read(groundtruth / "inferencex_golden_acceptance_length_by_k.csv"):
        counts = Counted(int(row["k"]), float(row["acceptance_length"]))
        curves.setdefault((row["curve"], row["thinking"]), []).append(counts)
    return {name: _left_out(counts) for name, counts in curves.items()}


def _left_out(counts: Iterable[Counted]) -> tuple[Row, ...]:
    """Each depth, from the others."""
    checks = check_counts(_refit, list(counts))
    return tuple(Row(check.observed, check.predicted, LIMIT) for check in checks)


def _refit(counts: Sequence[Counted], positions: int | None) -> AcceptanceConfig:
    return family.fit_counts(family.IID[1], counts, positions)


def accounts(groundtruth: Path) -> list[Account]:
    """DSpark's figures, then the golden lengths."""
    paper = [row for rows in figure4(groundtruth).values() for row in rows]
    what, mark = "acceptance: tokens per round at a depth not fitted", "3 %"
    return [
        account(
            7,
            f"{what}; DSpark paper",
            mark,
            "other depths of the curve, or c1 and c2",
            "fitted on other depths",
            [*paper, *two_positions(groundtruth).values()],
        ),
        account(
            7,
            f"{what}; InferenceX",
            mark,
            "other depths of the curve",
            "fitted on other depths",
            [row for rows in golden(groundtruth).values() for row in rows],
        ),
    ]


# -- the page --------------------------------------------------------------------------------------

HEAD: Final = "drafter | domain | " + " | ".join(f"k={k} | error" for k in DEPTHS)
TWO_HEAD: Final = "domain | tokens at k=7 | from c1 and c2 | error"
GOLDEN_HEAD: Final = "curve | thinking | depths within 3 % | worst"


def rows(groundtruth: Path) -> Iterable[list[str]]:
    """Published tokens per round and the error of the prediction."""
    for (drafter, domain), found in figure4(groundtruth).items():
        cells = [cell for row in found for cell in (f"{row.published:.2f}", error_cell(row))]
        yield [drafter, domain, *cells]


def two_rows(groundtruth: Path) -> Iterable[list[str]]:
    """EAGLE-3 from two positions."""
    for domain, row in two_positions(groundtruth).items():
        yield [domain, f"{row.published:.2f}", f"{row.simulated:.2f}", error_cell(row)]


def golden_rows(groundtruth: Path) -> Iterable[list[str]]:
    """One line per curve."""
    for (curve, thinking), found in golden(groundtruth).items():
        worst = max((row.error for row in found), key=abs)
        on = thinking.removeprefix("thinking_")
        yield [curve, on, f"{sum(row.holds for row in found)} of {len(found)}", percent(worst)]
