"""Every broken file under tests/broken gives exactly the message that stands beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from calibrate.profile import ProfileError, load_profile
from sim.errors import ScenarioError
from sim.scenario.load import load_scenario
from tests.scenario.support import BROKEN

SCENARIOS = sorted((BROKEN / "scenarios").glob("*.yaml"))
PROFILES = sorted((BROKEN / "profiles").glob("*.json"))


def expected(path: Path) -> str:
    """The message beside a broken file, without its last line end."""
    return path.with_suffix(".expected").read_text(encoding="utf-8").removesuffix("\n")


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_a_broken_scenario_gives_its_messages(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    with pytest.raises(ScenarioError) as caught:
        load_scenario(Path(path.name))
    assert str(caught.value) == expected(path)


@pytest.mark.parametrize("path", PROFILES, ids=lambda path: path.stem)
def test_a_broken_profile_gives_its_message(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    with pytest.raises(ProfileError) as caught:
        load_profile(Path(path.name))
    assert str(caught.value) == expected(path)


def test_there_are_enough_of_them_and_none_without_its_message() -> None:
    assert len(SCENARIOS) + len(PROFILES) >= 40
    stems = {path.with_suffix("") for path in [*SCENARIOS, *PROFILES]}
    messages = [*(BROKEN / "scenarios").glob("*.expected"), *(BROKEN / "profiles").glob("*.expected")]
    assert {path.with_suffix("") for path in messages} == stems
