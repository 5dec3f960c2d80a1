"""Recorded runs of the real vLLM, replayed: minimal cases of each rule, and a sample of the campaign.

``recorded/rule-*.json.gz`` is for each rule the smallest configuration found on which leadline
without the rule differs from vLLM; ``recorded/NNNN.json.gz`` are drawn configurations.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.referee.replay import first_difference, load
from tests.referee.rules import RULES
from tests.reference.vllm_scheduler import replay

FOLDER = Path(__file__).parent / "recorded"
FILES = sorted(FOLDER.glob("*.json.gz"))
MINIMAL = [path for path in FILES if path.name.startswith("rule-")]


def rule_of(path: Path) -> str:
    """The rule that a minimal case is about."""
    return path.name.removeprefix("rule-").split(".")[0]


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name.split(".")[0])
def test_every_step_and_every_request_is_vllms(path: Path) -> None:
    """Clock, tokens, batch, drafts, preemptions, queue, held blocks and request times are identical."""
    assert first_difference(load(path)) is None


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name.split(".")[0])
def test_the_plain_reference_takes_the_same_steps(path: Path) -> None:
    """The second implementation, too, in what each request gets and in which order."""
    assert replay(load(path)) == []


@pytest.mark.parametrize("path", MINIMAL, ids=rule_of)
def test_each_rule_is_needed(path: Path) -> None:
    """Without the rule, the minimal case differs."""
    assert first_difference(load(path), without=rule_of(path)) is not None


def test_every_rule_that_can_be_taken_away_has_a_minimal_case() -> None:
    assert {rule_of(path) for path in MINIMAL} == set(RULES)
