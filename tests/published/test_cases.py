"""The cases with modules of their own: their marks, their inputs, and the summary over all."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibrate.compose.overheads import A100_STUDY
from calibrate.profile import Profile, dump_profile, load_profile
from sim.acceptance.config import BetaAcceptance, PerPositionAcceptance
from sim.scenario.catalogue import locate
from sim.scenario.load import load_scenario
from tests.published import a100, counters, drafts, old_engines, rtx, stated, surfaces
from tests.published.judged import Account, Row, account
from tests.published.measure import SCENARIOS, read
from tests.published.summary import accounts
from tests.published.test_published import GROUNDTRUTH, needs_tables

pytestmark = pytest.mark.xdist_group("published")  # one process: its runs are cached
TABLES = GROUNDTRUTH.parent / "data" / "aiconfigurator_perf"
needs_kernels = pytest.mark.skipif(not TABLES.is_dir(), reason=f"the kernel tables are not at {TABLES}")
DEVELOPER_CASES = {1, 2, 3, 5, 7, 8, 12}


def rates(stem: str) -> PerPositionAcceptance:
    acceptance = load_scenario(SCENARIOS / f"{stem}.yaml").acceptance
    assert isinstance(acceptance, PerPositionAcceptance)
    return acceptance


def tokens_per_round(acceptance: object) -> float:
    """Tokens of all requests over their rounds at depth 5, all answers equally long."""
    if isinstance(acceptance, BetaAcceptance):
        assert acceptance.mean is not None
        assert acceptance.concentration is not None
        a = acceptance.mean * acceptance.concentration
        rate = np.random.default_rng(1).beta(a, acceptance.concentration - a, 200_000)
        return float(1 / np.mean((1 - rate) / (1 - rate**6)))
    assert isinstance(acceptance, PerPositionAcceptance)
    return 1.0 + sum(acceptance.unconditional or ())


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
    assert {each.case for each in accounts(GROUNDTRUTH) if each.verdicts and each.case} == DEVELOPER_CASES


# -- case 1 ----------------------------------------------------------------------------------------


@needs_tables
def test_the_a100_study_is_met_without_a_fit() -> None:
    """tok/s, ITL, TTFT and speed-up of both workloads at every load, within the ground truth's marks."""
    rows = a100.judged(GROUNDTRUTH, a100.CODE)
    assert len(rows) == 56
    assert [row for row in rows if not row.holds] == []


@needs_tables
def test_first_tokens_need_asynchronous_scheduling() -> None:
    """In turn, with all else the same, TTFT under load is a quarter too short or more."""
    for line in a100.worth_rows(GROUNDTRUTH):
        for cell in line[4::3]:
            assert float(cell.strip("* %")) < -15


@needs_tables
@pytest.mark.parametrize("workload", a100.WORKLOADS)
def test_acceptance_of_the_a100_study_is_its_tokens_per_round(workload: str) -> None:
    """1 + p1 + ... + p5 is the published tau at every load, also where rates differ by request."""
    tau = tokens_per_round(load_scenario(SCENARIOS / f"a100-{workload}.yaml").acceptance)
    for row in read(GROUNDTRUTH / a100.FILE):
        if (row["workload"], row["spec"]) == (workload, "eagle3"):
            assert tau == pytest.approx(float(row["tau"]), rel=0.01)


@needs_tables
def test_the_shipped_profile_meets_the_a100_study_too() -> None:
    """Host and launches were taken from one client of it; every row that was not is within its mark."""
    rows = a100.judged(GROUNDTRUTH, a100.SHIPPED)
    assert len(rows) == 46
    assert [row for row in rows if not row.holds] == []


@pytest.mark.parametrize("engine", [old_engines.vllm_010_a100, old_engines.vllm_024_a100])
def test_engines_of_the_unfitted_set_hold_nothing_of_the_a100_study(engine: Callable[[], Profile]) -> None:
    """Their kernels are the shipped profile's, and no term or assumption has the study as its source."""
    shipped, other = load_profile(locate("profile", a100.SHIPPED, SCENARIOS)), engine()
    assert other.target.verify == shipped.target.verify
    assert A100_STUDY in dump_profile(shipped)
    assert A100_STUDY not in dump_profile(other)


# -- cases 7 and 8 ---------------------------------------------------------------------------------


@needs_tables
def test_depths_between_others_are_predicted_to_3_percent() -> None:
    """DSpark Fig. 4 at 7 and 11, each from the other three depths."""
    inner = [rows[i] for rows in drafts.figure4(GROUNDTRUTH).values() for i in (1, 2)]
    assert all(row.holds for row in inner)


@needs_kernels
def test_a_small_models_passes_lack_what_another_models_pass_saves_a_layer() -> None:
    """One number from Llama-3.1-8B brings all of Qwen3-1.7B's captured forwards within the mark."""
    found = {surface.what: surface for surface in surfaces.whole(GROUNDTRUTH)}
    alone, saved = found[surfaces.ADIXG], found[surfaces.SAVED]
    assert all(row.holds for row in saved.rows)
    assert saved.mean < alone.mean / 3


@needs_kernels
def test_the_stated_errors_of_shipped_profiles_cover_their_surfaces() -> None:
    """The mean error of every surface predicted is within what the profiles made from it state."""
    made = [each for each in stated.stated(GROUNDTRUTH) if each.stated is not None]
    assert {each.surface.what for each in made} == set(stated.SHIPPED)
    assert [each for each in made if not each.covers] == []


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
@pytest.mark.parametrize("case", counters.CASES)
def test_acceptance_is_that_of_the_counters(case: tuple[str, str, str]) -> None:
    """Rates per position over all rounds, those without a draft counted as rejected."""
    model, benchmark, method = case
    table = read(GROUNDTRUTH / "altria_vllm012_prom_counters.csv")
    keys = ("benchmark", "model", "method_dir")
    row = next(r for r in table if tuple(r[key] for key in keys) == (benchmark, model, method))
    share = 1.0
    if method == "ngram":
        share = float(row["drafts"]) / (float(row["generation_tokens"]) - float(row["accepted_tokens"]))
    found = rates(counters.stem(*case))
    expected = [share * float(rate) for rate in row["per_position"].split(";")]
    assert found.unconditional == pytest.approx(expected, abs=1e-4)
    assert (found.match or 1.0) == pytest.approx(share, abs=5e-4)


# -- RTX PRO 6000 ----------------------------------------------------------------------------------


@needs_kernels
def test_percentiles_are_those_of_the_log() -> None:
    """LLMServingSim's summary of the Llama run is what its log of single requests gives."""
    log = TABLES.parent / "llmservingsim" / "vllm_RTXPRO6000_Llama-3.1-8B_requests.jsonl"
    served = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    queued, first, last = (
        np.array([each[name] for each in served]) for name in ("queued_ts", "first_token_ts", "last_token_ts")
    )
    tokens = np.array([each["output_toks"] for each in served])
    found = {"TTFT": first - queued, "TPOT": (last - first) / (tokens - 1), "E2EL": last - queued}
    for metric, seconds in found.items():
        expected = rtx.RUNS[0].published[metric]
        assert 1e3 * np.percentile(seconds, rtx.PERCENTILES) == pytest.approx(expected, rel=0.002)


@needs_kernels
def test_dense_models_hold_in_every_percentile() -> None:
    """Llama-3.1-8B and Qwen3-32B on RTX PRO 6000: TTFT 20 %, TPOT and E2EL 10 %, each at p50, p90, p99."""
    for each in rtx.RUNS[:2]:
        rows = [row for of_metric in rtx.judged(TABLES.parent, each).values() for row in of_metric]
        assert [row for row in rows if not row.holds] == []
