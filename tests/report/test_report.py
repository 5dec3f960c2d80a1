"""A report says everything, closes over everything, and lets no text out of its place."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import sim.report as reports
from sim.report.breakdown import parts_ms
from sim.report.cli import app
from sim.report.crossover import crossings
from sim.report.examples import Examples
from sim.report.layout import Layout, Place, lay_out
from sim.report.model import Report
from sim.report.plain import text
from sim.report.styles import COLOURS, NEUTRAL
from sim.report.verdict import ranges, sentences
from sim.results import compare
from sim.results.compare import PolicyResult, best_policy
from sim.sweep.results import Results
from tests.report.conftest import WICKED
from tests.results import build


def test_every_policy_and_load_is_there(results: Results, report: Report) -> None:
    """In the list of policies, in every load's table and in every chart over policies."""
    labels = set(results.scenario.labels)
    assert len(labels) == 20
    assert {style.label for style in report.policies} == labels
    assert [table.title for table in report.tables] == [f"Load {load}" for load in ("4/s", "16/s", "64/s")]
    assert all({row[0] for row in table.rows} == labels for table in report.tables)
    latency = next(chart for chart in report.charts if chart.key == "latency")
    assert {(row[0], row[1]) for row in latency.table.rows} == {
        (load, label) for load in ("4/s", "16/s", "64/s") for label in labels
    }


def test_every_chart_the_issue_asks_for_is_there(report: Report) -> None:
    """Each with a title, a text for who cannot see it, and rows in its table."""
    wanted = "latency forest pareto depth-breadth timeline breakdown acceptance regret crossover"
    assert [chart.key for chart in report.charts] == wanted.split()
    for chart in report.charts:
        assert chart.title.endswith("?")
        assert chart.spec["description"] == chart.alt
        assert chart.table.rows
        assert all(len(row) == len(chart.table.columns) for row in chart.table.rows)


def test_twenty_policies_stay_under_two_megabytes(page: str) -> None:
    assert len(page.encode()) < 2_000_000


def test_no_text_of_the_scenario_becomes_markup(page: str) -> None:
    """The wicked label stands in names, tables, options and charts, and nowhere as a tag."""
    assert "alert(1)" in page
    assert "<script>alert" not in page
    assert "</style> " not in page.replace("</style>\n", "")
    specs = re.search(r'<script type="application/json" id="specs">(.*?)</script>', page, re.DOTALL)
    assert specs is not None
    assert "<" not in specs[1]
    assert WICKED in json.dumps(json.loads(specs[1]))


def test_the_page_loads_nothing(page: str) -> None:
    """No attribute and no style sheet names anything outside, and the policy of the page forbids it."""
    before = page.split("<script>", maxsplit=1)[0]
    outside = re.findall(r"""(?:src|href|action)\s*=\s*["'](?!#|data:)[^"']*""", before)
    assert outside == []
    assert "url(" not in page.split("</style>", maxsplit=1)[0]
    assert "@import" not in page.split("</style>", maxsplit=1)[0]
    assert "default-src 'none'" in page
    assert "unsafe-eval" not in page.split("<title>", maxsplit=1)[0]


def test_markdown_and_json_say_the_same(report: Report) -> None:
    """Every verdict sentence is in both; nothing in Markdown is read as a tag or ends a cell early."""
    written = reports.markdown(report)
    data = json.loads(reports.json(report))
    assert data["schema"] == "leadline.report/1"
    assert data["verdict"] == list(report.verdict)
    assert all(text(sentence) in written for sentence in report.verdict)
    assert "<script" not in written
    for line in written.splitlines():
        if line.startswith("| "):
            assert "alert" not in line or r"\|" in line


def test_the_same_results_give_the_same_bytes(results: Results, page: str) -> None:
    assert reports.html(reports.build(results)) == page


def test_one_load_makes_every_chart_as_well(results: Results) -> None:
    """A scenario without a sweep has no load axis; every chart is made all the same."""
    cell = results.comparison.cells[0]
    alone = replace(results, cells=results.cells[:1], comparison=replace(results.comparison, cells=(cell,)))
    built = reports.build(alone)
    assert len(built.charts) == 9


def test_ranges_only_name_policies_that_are_best_or_even(results: Results) -> None:
    """The choice of a range is in the even set of every load of it, and ranges cover all loads in order."""
    comparison = results.comparison
    layout = lay_out(results.cells, comparison)
    found = ranges(layout.of(""), comparison)
    assert [place for part in found for place in part.places] == list(layout.of(""))
    for part in found:
        choice = part.choice(comparison.baseline)
        for place in part.places:
            best = best_policy(place.compared, comparison.metric, comparison.error)
            assert choice in best.even
    for left, right in pairwise(found):
        even = best_policy(right.places[0].compared, comparison.metric, comparison.error).even
        assert not set(left.shared) & set(even)


def said(*policies: PolicyResult) -> tuple[str, ...]:
    """The verdict on policies at one load, against the first of them."""
    found = compare.Cell("base", policies)
    comparison = compare.Comparison((found,), policies[0].label)
    place = Place("", "base", None, None, found)  # type: ignore[arg-type]
    return sentences(Layout("load", (place,), 0), comparison)


def test_a_verdict_without_a_choice_says_why() -> None:
    """A bound is nothing to take, an unstable policy neither, and one policy alone beats nothing."""
    bound, off = build.policy("oracle", (5, 5), bound=True), build.policy("off", (9, 9))
    unstable = build.policy("off", (9, 9), unstable=True)
    only = "Here, off is the only policy to choose from: there is nothing to compare it with."
    assert said(bound) == ("Here, only a bound was simulated; add a policy.",)
    assert said(off) == (only,)
    assert said(off, bound) == (only,)
    assert "no policy is stable" in said(unstable, bound)[0]
    assert "every other policy is worse" in said(off, build.policy("static", (12, 12)))[0]


def test_the_seed_that_is_looked_into_is_one_that_the_means_have(results: Results) -> None:
    """The first, unless a policy that is not unstable is so under it."""
    first, second = results.scenario.run.seeds
    assert Examples(results).seed == first
    key = (results.cells[0].label, "off", first)
    backlog = replace(results.runs[key], metrics=build.metrics(unstable=True))
    assert Examples(replace(results, runs={**results.runs, key: backlog})).seed == second


def test_parts_of_a_step_add_up_and_plain_decoding_wastes_nothing(results: Results) -> None:
    """To the mean step of the same run; without drafts there is no waste, with them some."""
    place = lay_out(results.cells, results.comparison).places[0]
    examples = Examples(results)
    for policy in ("off", "static(k=8)", "oracle(k_max=5)"):
        example = examples.of(place, policy)
        steps = example.records.steps
        whole = float((steps["end_ns"] - steps["start_ns"]).mean()) / 1e6
        parts = parts_ms(example)
        assert sum(parts.values()) == pytest.approx(whole, abs=1e-4)
        assert min(parts.values()) >= 0
        assert (parts["waste (rejected drafts)"] > 0) == (policy == "static(k=8)") or policy.startswith(
            "oracle"
        )


def test_crossover_is_the_second_implementation_of_a_round(results: Results) -> None:
    """Depth 0 wins where acceptance is 0; a gain is what the round's own formula gives."""
    setup = Examples(results).setup("", lay_out(results.cells, results.comparison))

    class Never:
        max_depth = 8

        def expected_tokens_per_round(self, depth: int) -> float:
            return 1.0

    hopeless = crossings(replace(setup, processes=(Never(),)))  # type: ignore[arg-type]
    assert all(each.even or each.depth == 0 for each in hopeless)
    assert any(each.gain > each.error for each in crossings(setup))
    assert next(each.batch for each in crossings(setup)) == 1


@pytest.mark.parametrize("background", [1.0, 0.0094])
def test_colours_stand_out_on_white_and_on_dark(background: float) -> None:
    """WCAG 2.2, 1.4.11: graphics have a contrast of 3 : 1 with their background."""

    def luminance(colour: str) -> float:
        parts = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
        linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        return float(linear @ np.array([0.2126, 0.7152, 0.0722]))

    for colour in (*COLOURS, NEUTRAL):
        bright, dark = sorted((luminance(colour), background), reverse=True)
        assert (bright + 0.05) / (dark + 0.05) >= 3, colour


def test_at_the_ridge_growth_equals_the_floor() -> None:
    """By the simulator's own prices: one token's pass, and the slope of the range's upper half."""
    from calibrate.profile import load_profile
    from sim.cost.passes import PassCost

    for file in sorted((Path(__file__).parents[2] / "scenarios" / "profiles").glob("*.json")):
        profile = load_profile(file)
        ridge, top = profile.ridge_tokens, profile.max_tokens
        if ridge is None or profile.fit:
            continue
        verify = PassCost(profile.target.verify, top + 1)
        one, half, most = (verify.ns(n, n, n) for n in (1, top // 2, top))
        assert ridge * (most - half) / (top - top // 2) == pytest.approx(one, rel=1e-6)


def test_the_command_writes_files_and_pictures(folder: Path, tmp_path: Path) -> None:
    """Where it is asked to; a picture per chart; a folder that is no run is refused."""
    runner = CliRunner()
    for form, name in (("html", "a.html"), ("json", "a.json")):
        result = runner.invoke(app, [str(folder), "--format", form, "--out", str(tmp_path / name)])
        assert result.exit_code == 0, result.output
        assert (tmp_path / name).stat().st_size > 1000
    result = runner.invoke(app, [str(folder), "--format", "png", "--out", str(tmp_path / "pictures")])
    assert result.exit_code == 0
    pictures = sorted((tmp_path / "pictures").glob("*.png"))
    assert len(pictures) == 9
    assert all(each.read_bytes().startswith(b"\x89PNG") for each in pictures)
    assert runner.invoke(app, [str(tmp_path)]).exit_code != 0
    result = runner.invoke(app, [str(folder), "--format", "png", "--out", str(tmp_path / "a.json")])
    assert "pictures go into a folder" in str(result.exception)
