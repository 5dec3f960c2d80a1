"""Other people's measurements, and the scenarios that stand for them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from calibrate.derive_workloads import dump
from calibrate.profile import dump_profile
from sim.acceptance.build import build_process
from sim.acceptance.config import PerPositionAcceptance
from sim.scenario.load import load_scenario
from sim.workload.grids import load_workload_file
from tests.published.derive import NAMES, derive
from tests.published.measure import (
    ROOT,
    SCENARIOS,
    BenchCase,
    PaperCase,
    bench_cases,
    error,
    paper_cases,
    read,
    simulate,
)
from tests.published.old_engines import PROFILES
from tests.published.page import page, paper_passes

pytestmark = pytest.mark.xdist_group("published")  # one process: its runs are cached
GROUNDTRUTH = ROOT.parent / "shared" / "groundtruth"
needs_tables = pytest.mark.skipif(
    not GROUNDTRUTH.is_dir(), reason="the published tables are not at ../shared/groundtruth"
)
needs_kernels = pytest.mark.skipif(
    not GROUNDTRUTH.with_name("data").is_dir(), reason="the kernel tables are not at ../shared/data"
)
STEMS = sorted(path.stem for path in SCENARIOS.glob("*.yaml"))


def bench_case(dataset: str, drafter: str) -> BenchCase:
    cases = bench_cases(GROUNDTRUTH)
    return next(case for case in cases if (case.dataset, case.drafter) == (dataset, drafter))


def paper_case(engine: str, method: str) -> PaperCase:
    cases = paper_cases(GROUNDTRUTH)
    return next(case for case in cases if case.engine.startswith(engine) and case.method == method)


# -- the marks -------------------------------------------------------------------------------------


@needs_tables
@pytest.mark.parametrize(
    ("dataset", "drafter", "batches"),
    [
        ("GSM8K", "eagle", (1, 16, 128)),
        ("GSM8K", "ngram", (1, 16, 64, 128)),
        ("CNN/DM", "eagle", (64, 128)),
        ("CNN/DM", "ngram", (1, 16, 64, 128)),
    ],
)
def test_ratios_of_specdecode_bench_are_within_their_mark(
    dataset: str, drafter: str, batches: tuple[int, ...]
) -> None:
    """SpecDecode-Bench Fig. 1, 7 % on GSM8K and 10 % on CNN/DM; the three known misses are left out.

    EAGLE on GSM8K at 64 and on CNN/DM at 1 and 16 (docs/validation.md says why).
    """
    case = bench_case(dataset, drafter)
    arms = case.simulate()
    errors = {batch: error(arms[batch].ratio, case.published[batch]) for batch in batches}
    assert {batch: e for batch, e in errors.items() if abs(e) > case.limit} == {}


@needs_tables
@pytest.mark.parametrize("engine", ["SGLang", "vLLM"])
def test_eagle3_wins_at_every_batch_size_as_published(engine: str) -> None:
    """EAGLE-3 paper Tables 3 and 5: its ratio stays above 1 over the whole grid."""
    case = paper_case(engine, "EAGLE-3")
    assert min(case.published.values()) > 1
    assert paper_passes(case, case.simulate())


@needs_tables
@needs_kernels
def test_the_page_is_what_the_scenarios_give() -> None:
    """docs/validation.md is the output of its command."""
    committed = (ROOT / "docs" / "validation.md").read_text(encoding="utf-8")
    assert committed == page(GROUNDTRUTH), "write it again: python -m tests.published.page"


def test_drafting_without_a_match_would_make_lookup_lose() -> None:
    """Three drafts in every step of GSM8K at batch 128 cost far more than n-gram acceptance gives."""
    scenario = {"acceptance.match": 1.0, "sweep": {"workload.arrival.max_concurrency": [128]}}
    assert simulate("sdbench-gsm8k-ngram", scenario)[128].ratio < 0.75


# -- the inputs ------------------------------------------------------------------------------------


@pytest.mark.parametrize("stem", STEMS)
def test_scenarios_load_without_the_tables(stem: str) -> None:
    """A published scenario needs nothing but what ships with it."""
    scenario = load_scenario(SCENARIOS / f"{stem}.yaml")
    assert scenario.name == stem
    assert scenario.labels[0] == "off"
    assert len(scenario.labels) == 2


@needs_tables
@pytest.mark.parametrize(("dataset", "stem"), [("gsm8k", "gsm8k"), ("cnn", "cnn-dm")])
@pytest.mark.parametrize("method", ["eagle", "ngram"])
def test_acceptance_is_that_of_the_traces(dataset: str, stem: str, method: str) -> None:
    """The rates in the YAML are the published replay at depth 3."""
    rows = read(GROUNDTRUTH / "sdbench_trace_acceptance_by_k.csv")
    row = next(r for r in rows if (r["dataset"], r["method"], r["k"]) == (dataset, method, "3"))
    acceptance = load_scenario(SCENARIOS / f"sdbench-{stem}-{method}.yaml").acceptance
    assert isinstance(acceptance, PerPositionAcceptance)
    rates = row["per_position_acc(unconditional)"].split(";")
    assert acceptance.unconditional == tuple(float(rate) for rate in rates)


@needs_tables
@pytest.mark.parametrize("name", NAMES)
def test_length_grids_are_derived_from_the_traces(name: str) -> None:
    """The shipped quantiles are the output of their command."""
    shipped = (ROOT / "scenarios" / "workloads" / f"{name}.json").read_text(encoding="utf-8")
    assert shipped == dump(derive(name, GROUNDTRUTH))


@pytest.mark.parametrize("name", NAMES)
def test_length_grids_keep_the_means(name: str) -> None:
    """Straight lines between few quantiles lose less than 2.5 % of the mean length."""
    workload = load_workload_file(ROOT / "scenarios" / "workloads" / f"{name}.json")
    assert workload.input is not None
    assert workload.joint is not None
    u = (np.arange(4000) + 0.5) / 4000
    v = np.modf(np.arange(4000) * 0.6180339887)[0].astype(np.float64)  # spreads evenly beside u
    assert workload.input.at(u).mean() == pytest.approx(workload.statistics["input_mean"], rel=0.025)
    outputs = workload.joint.at(u, v)
    assert outputs.mean() == pytest.approx(workload.statistics["output_mean"], rel=0.025)
    correlation = np.corrcoef(workload.input.at(u), outputs)[0, 1]
    assert correlation == pytest.approx(workload.statistics["input_output_correlation"], abs=0.12)


@pytest.mark.parametrize("number", range(len(PROFILES)))
def test_old_engines_are_derived_from_the_shipped_profiles(number: int) -> None:
    """The profiles beside the scenarios are the output of their command."""
    profile = PROFILES[number]()
    shipped = (SCENARIOS / f"{profile.name}.json").read_text(encoding="utf-8")
    assert shipped == dump_profile(profile)


# -- the look-up -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("match", "rates"), [(0.2, (0.0847, 0.0491)), (0.4, (0.1441, 0.1069))])
def test_lookup_matches_as_often_as_stated(match: float, rates: tuple[float, ...]) -> None:
    """It drafts at the stated share of positions, and wherever a draft would be accepted."""
    config = PerPositionAcceptance(process="per_position", unconditional=rates, match=match)
    process = build_process(config, seed=1, max_depth=3, locate=Path)
    paths = [process.path(request, 100, 200) for request in range(100)]
    found = np.stack([path.found for path in paths if path.found is not None])
    assert np.all(found[np.stack([path.run for path in paths]) > 0])
    assert np.mean(found) == pytest.approx(match, abs=5 * np.sqrt(match * (1 - match) / found.size))
