"""docs/scenarios.md says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

from sim.scenario import lint
from sim.scenario.model import Scenario
from sim.scenario.run_control import RunControl
from tests.scenario.support import problems, read

DOCS = (Path(__file__).parents[2] / "docs" / "scenarios.md").read_text(encoding="utf-8")


def test_the_scenario_at_the_top_is_valid() -> None:
    [text] = re.findall(r"```yaml\n(name: .*?)```", DOCS, re.DOTALL)
    assert [cell.label for cell in read(text).cells] == ["2/s", "4/s", "8/s"]


def test_the_mistakes_shown_are_those_reported() -> None:
    text = """\
profile: llama-3.1-8b-h100
drafter: eagle33
acceptance: {process: iid, alpha: 0.7}
workload:
  arrival: {process: poisson, request_rate: 4}
  lengths: {input: 512, output: 128}
  num_requests: 500
policies: [off, {policy: static, k: 40}]
drafter: eagle3
"""
    found = set(problems(text)) | set(problems(text.replace("drafter: eagle33", "drafter: eagle3")))
    shown = re.findall(r"^mine\.yaml:(.*)$", DOCS, re.MULTILINE)
    assert len(shown) == 4
    assert set(shown) <= found


def test_every_key_and_every_lint_is_explained() -> None:
    rows = set(re.findall(r"`([\w-]+)`", "\n".join(line for line in DOCS.splitlines() if line[:3] == "| `")))
    assert set(Scenario.model_fields) | set(RunControl.model_fields) <= rows
    ids = re.findall(r'yield "([\w-]+)", Finding', Path(lint.__file__).read_text(encoding="utf-8"))
    assert len(ids) == 9
    assert set(ids) <= rows
