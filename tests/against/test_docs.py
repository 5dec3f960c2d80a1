"""docs/against.md shows what is read and printed."""

from __future__ import annotations

import re
from pathlib import Path

from sim.against.adjust import PARAMETERS
from sim.against.bench import make_bench
from sim.against.compare import lines
from sim.against.readers import read_files
from tests.scenario.support import read

DOCS = (Path(__file__).parents[2] / "docs" / "against.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    """The first code block of a language."""
    found = re.search(rf"```{language}\n(.*?)```", DOCS, re.DOTALL)
    assert found is not None
    return found[1]


def test_the_table_and_the_scenario_shown_give_the_numbers_shown(tmp_path: Path) -> None:
    """The row for 8 clients without drafts, which nothing random enters."""
    table, scenario = tmp_path / "gsm8k.csv", tmp_path / "a100.yaml"
    table.write_text(block("csv"))
    scenario.write_text(block("yaml"))
    runs = [run for run in read_files([table]) if run.label == "c=8, plain"]
    bench = make_bench(scenario, runs, {}, seeds=1)
    by_name = {line.metric: line for line in lines(bench, 0)}
    shown = re.search(r"c=8, plain: step ([\d.]+) ms measured, ([\d.]+) simulated", DOCS)
    assert shown is not None
    tpot = by_name["tpot_mean_ms"]
    assert (f"{tpot.measured:.2f}", f"{tpot.simulated:.2f}") == shown.groups()
    assert read(block("yaml")).scenario.labels == ("off", "static(k=5)")


def test_every_parameter_is_explained() -> None:
    assert set(PARAMETERS) <= set(re.findall(r"`(\w+)`", DOCS))
