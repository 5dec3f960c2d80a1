"""The cases with modules of their own: their marks, their inputs, and the summary over all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibrate.profile import load_profile
from sim.acceptance.config import PerPositionAcceptance
from sim.scenario.catalogue import locate
from sim.scenario.load import load_scenario
from tests.published import a100, counters, drafts, surfaces
from tests.published.judged import Account, Row, account
from tests.published.measure import SCENARIOS, read
from tests.published.summary import accounts
from tests.published.test_published import GROUNDTRUTH, needs_tables

TABLES = GROUNDTRUTH.parent / "data" / "aiconfigurator_perf"
needs_kernels = pytest.mark.skipif(not TABLES.is_dir(), reason=f"the kernel tables are not at {TABLES}")
DEVELOPER_CASES = {1, 2, 3, 5, 7, 8, 12}


def rates(stem: str) -> PerPositionAcceptance:
    acceptance = load_scenario(SCENARIOS / f"{stem}.yaml").acceptance
    assert isinstance(acceptance, PerPositionAcceptance)
    return acceptance


# -- what is judged --------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.floats(0.1, 10), st.floats(0.1, 10), st.floats(0.01, 1)), min_size=1))
def test_an_account_counts_its_rows_and_names_the_worst(numbers: list[tuple[float, float, float]]) -> None:
    """Held are those within their limits; the verdict is *holds* exactly when all are."""
    summed = account(1, "", "", "", "", (Row(*each) for each in numbers))
    held = [abs(s / p - 1) <= limit for p, s, limit in numbers]
    assert summed.held == sum(held)
    assert (summed.verdict == "holds") == all(held)
    assert abs(summed.worst) == max(abs(s / p - 1) for p, s, _ in numbers)


def test_a_case_without_rows_is_not_simulated() -> None:
    """It neither holds nor misses."""
    assert Account(12, "", "", "what is missing", "none", (), ()).verdict == "not simulated"


@needs_tables
@needs_kernels
def test_every_developer_case_has_a_verdict() -> None:
    """The summary has a judged row of each."""
    assert {each.case for each in accounts(GROUNDTRUTH) if each.verdicts} == DEVELOPER_CASES


# -- case 1 ----------------------------------------------------------------------------------------


@needs_tables
def test_plain_throughput_of_the_a100_study_to_32_clients() -> None:
    """Absolute tokens per second of both workloads, within 3 %, with the shipped profile."""
    plain = [
        cell for cell in a100.cells(GROUNDTRUTH, a100.SHIPPED) if cell.arm == "none" and cell.clients <= 32
    ]
    assert len(plain) == 6
    assert max(abs(cell.row("goodput_tok_s").error) for cell in plain) < 0.03


@needs_tables
def test_drafting_steps_of_the_a100_study_lack_something_under_load() -> None:
    """The known miss: medians at 32 and 64 clients are too short with either set of inputs."""
    for profile in (a100.BLIND, a100.SHIPPED):
        cells = [c for c in a100.cells(GROUNDTRUTH, profile) if c.arm == "eagle3" and c.clients >= 32]
        assert max(cell.row("itl_p50_ms").error for cell in cells) < 0


@needs_tables
@pytest.mark.parametrize("workload", a100.WORKLOADS)
def test_acceptance_of_the_a100_study_is_its_tokens_per_round(workload: str) -> None:
    """1 + p1 + ... + p5 is the published tau at every load, to 1 %."""
    tau = 1 + sum(rates(f"a100-{workload}").unconditional or ())
    for row in read(GROUNDTRUTH / a100.FILE):
        if (row["workload"], row["spec"]) == (workload, "eagle3"):
            assert tau == pytest.approx(float(row["tau"]), rel=0.01)


def test_one_token_a_sequence_costs_the_same_with_other_wide_attention() -> None:
    """The blind profile differs from the shipped one in host, launches and passes wider than a token."""
    own, other = (
        next(term for term in profile.target.verify if term.name == "attention_decode").per_ns
        for profile in (
            load_profile(locate("profile", a100.SHIPPED, SCENARIOS)),
            load_profile(SCENARIOS / a100.BLIND),
        )
    )
    for per in (own, other):
        once = own["context_tokens"] + own["query_context_tokens"]
        assert per["context_tokens"] + per["query_context_tokens"] == pytest.approx(once)
    assert other["query_context_tokens"] < own["query_context_tokens"]


# -- cases 7 and 8 ---------------------------------------------------------------------------------


@needs_tables
def test_depths_between_others_are_predicted_to_3_percent() -> None:
    """DSpark Fig. 4 at 7 and 11, each from the other three depths."""
    inner = [rows[i] for rows in drafts.figure4(GROUNDTRUTH).values() for i in (1, 2)]
    assert all(row.holds for row in inner)


@needs_tables
def test_the_cliff_is_just_past_the_largest_captured_size() -> None:
    """DeepSeek-V4-Flash falls out of its graphs at 1,025 tokens; given there, the height holds beyond."""
    last, first, *others = surfaces.cliff(GROUNDTRUTH)
    assert (last.tokens, first.tokens) == (1024, 1025)
    assert first.given.simulated > 5 * last.given.simulated
    assert all(step.given.holds for step in others)
    assert not first.launches.holds


# -- case 12 ---------------------------------------------------------------------------------------


@needs_tables
@pytest.mark.parametrize("benchmark", counters.BENCHMARKS)
@pytest.mark.parametrize("method", counters.METHODS)
def test_acceptance_is_that_of_the_counters(benchmark: str, method: str) -> None:
    """Rates per position over all rounds, those without a draft counted as rejected."""
    table = read(GROUNDTRUTH / "altria_vllm012_prom_counters.csv")
    keys = ("benchmark", "model", "method")
    row = next(r for r in table if tuple(r[key] for key in keys) == (benchmark, "L31-8B-I", method))
    share = 1.0
    if method == "ngram":
        share = float(row["drafts"]) / (float(row["generation_tokens"]) - float(row["accepted_tokens"]))
    found = rates(f"altria-8b-{counters.BENCHMARKS[benchmark].lower()}-{method}")
    expected = [share * float(rate) for rate in row["per_position"].split(";")]
    assert found.unconditional == pytest.approx(expected, abs=1e-4)
    assert (found.match or 1.0) == pytest.approx(share, abs=5e-4)
