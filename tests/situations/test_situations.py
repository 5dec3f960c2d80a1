"""Every sentence of ``docs/situations.md`` is checked here; what is known not to hold is named."""

from __future__ import annotations

import re

import pytest
from rich.console import Console

from sim.results.names import METRICS
from sim.results.terminal import render
from sim.scenario.lint import lint
from sim.scenario.load import read_scenario
from sim.sweep import run_scenario
from tests.situations.cases import ABLATIONS, CASES, GAPS
from tests.situations.crossovers import OFF, SCHEDULE
from tests.situations.page import PAGE, page
from tests.situations.replay import SCENARIOS, results, scenario

MISSED = {
    "64 clients are within 0.08.": "the baseline says nothing about a verify pass of 320 rows",
    "900 tokens are within 0.05.": "how windowed layers share attention's time is taken from KV bytes",
    "In the low phases depth 2 is about twice as fast as depth 3.": "no cost of a round does that",
    "It is 5 to 15 % faster than the best fixed depth over all.": "acceptance lengths allow 5 % at most",
}


@pytest.mark.parametrize("case", CASES)
def test_what_users_reported_comes_out(case: str) -> None:
    """Every sentence of the case holds, but for the misses that the page explains."""
    wrong = [check.says for check in CASES[case]().checks if not check.holds]
    assert [says for says in wrong if says not in MISSED] == []


@pytest.mark.parametrize("case", ABLATIONS)
def test_the_effect_goes_with_its_switch(case: str) -> None:
    """Every sentence of the ablation holds, and its table has the same columns throughout."""
    ablation = ABLATIONS[case]()
    assert [check.says for check in ablation.checks if not check.holds] == []
    assert len({len(row) for row in ablation.table}) == 1


def test_every_case_of_a_policys_surprise_has_an_ablation() -> None:
    """All but the crossovers and the metric's name."""
    assert set(CASES) - set(ABLATIONS) == {"U01", "U10", "U14"}


def test_the_known_misses_are_still_missed() -> None:
    """A miss that is mended must be taken off the list."""
    wrong = {check.says for make in CASES.values() for check in make().checks if not check.holds}
    assert wrong == set(MISSED)


def test_the_page_is_what_its_command_writes() -> None:
    """``python -m tests.situations.page`` changes nothing."""
    assert PAGE.read_text(encoding="utf-8") == page()


def test_all_fifteen_situations_have_a_row() -> None:
    """Simulated, or with what is missing."""
    assert sorted([*CASES, *(gap.id for gap in GAPS)]) == [f"U{number:02}" for number in range(1, 16)]


def test_every_situation_ships_and_is_on_the_page() -> None:
    """The scenario files are those that the cases name."""
    named = {name for make in CASES.values() for name in make().scenarios}
    assert {path.stem for path in SCENARIOS.glob("u*.yaml")} >= named


def test_depth_zero_is_off_when_it_costs_nothing() -> None:
    """U02: without the cost of depth 0 the schedule reaches the line of off; with it, it never does."""
    chosen = scenario(
        "u02-context",
        engine__depth_zero_overhead_per_sequence="0us",
        sweep={"workload.lengths.input": [400]},
    )
    off, _, schedule = run_scenario(chosen).comparison.cells[0].policies
    assert schedule.mean("output_tokens_per_s") == pytest.approx(off.mean("output_tokens_per_s"), rel=0.02)
    assert max(a / b for a, b in zip(SCHEDULE, OFF, strict=True)) < 0.81


def test_a_budget_that_caps_the_batch_is_warned_of_at_load() -> None:
    """U12: the warning stands at the setting, names ten decodes, and goes away with budget for 32."""
    path = SCENARIOS / "u12-token-budget.yaml"
    (warning,) = [each for each in lint(read_scenario(path)) if each.id == "budget-caps-batch"]
    assert "engine.max_num_batched_tokens" in str(warning)
    assert "10 decodes fit" in str(warning)
    mended = read_scenario(path, {"engine.max_num_batched_tokens": 96})
    assert "budget-caps-batch" not in {each.id for each in lint(mended)}


def test_no_metric_is_called_itl_without_being_the_gap_between_chunks() -> None:
    """U14: TPOT, ITL and step latency have names and labels of their own."""
    labels = [metric.label for metric in METRICS.values()]
    assert len(set(labels)) == len(labels)
    for kind in ("tpot", "itl"):
        found = {name for name, metric in METRICS.items() if kind in f"{name} {metric.label}".lower()}
        assert found == {f"{kind}_{statistic}_ms" for statistic in ("mean", "p50", "p90", "p99")}


def test_the_wide_table_shows_both_numbers_each_under_its_name() -> None:
    """U14: 3.4 stands under TPOT mean and 8.7 under ITL mean."""
    console = Console(width=200)
    with console.capture() as capture:
        console.print(render(results("u14-metric-names").comparison, wide=True, width=200))
    table = capture.get()
    assert float(_under("ITL", "mean", table)) == pytest.approx(2550 / 293, rel=0.015)
    assert float(_under("TPOT", "mean", table)) == pytest.approx(1000 / 293, rel=0.015)


def _under(name: str, statistic: str, table: str) -> str:
    """The number of the first policy that ends where the heading ``name`` over ``statistic`` ends."""
    lines = table.splitlines()
    top = next(i for i, line in enumerate(lines) if name in line and "E2EL" in line)
    row = next(line for line in lines[top:] if "static(k=3)" in line and "against" not in line)
    for match in re.finditer(rf"\b{name}\b", lines[top]):
        if lines[top + 1][: match.end()].endswith(statistic):
            return row[: match.end()].split()[-1]
    raise AssertionError(f"no column {name} {statistic}")
