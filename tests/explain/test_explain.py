"""``leadline explain``: presets with their values and sources, for people and machines."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from sim.engine.behaviour import Behaviour
from sim.engine.config import EngineConfig
from sim.engine.presets import ENGINES
from sim.errors import InputError
from sim.explain.cli import app
from sim.explain.table import NAMES, differences, preset_of, rows, value_text


def printed(*words: str) -> str:
    found = CliRunner().invoke(app, list(words))
    assert found.exit_code == 0, found.output
    return found.output


@pytest.mark.parametrize("name", NAMES)
def test_a_preset_is_explained_switch_by_switch_with_its_sources(name: str) -> None:
    text, flat = printed(name), "".join(printed(name).split())
    for key, each in ENGINES[preset_of(name)].switches.items():
        assert key in text
        assert "".join(each.source.split())[:12] in flat, key
    for key, field in Behaviour.model_fields.items():
        assert (field.description or "").split()[0] in text, key


@pytest.mark.parametrize("name", NAMES)
def test_json_has_every_value_and_source(name: str) -> None:
    found = json.loads(printed(name, "--json"))
    engine = ENGINES[preset_of(name)]
    values = {each["name"]: each for each in found["values"]}
    stated = {**engine.switches, **engine.limits}
    assert {key: values[key]["source"] for key in stated} == {
        key: each.source for key, each in stated.items()
    }
    others = set().union(*(each.limits for each in ENGINES.values())) - set(engine.limits)
    assert set(values) == set(stated) | others
    assert all(values[key]["value"] == EngineConfig.model_fields[key].default for key in others)


def test_a_preset_does_not_differ_from_itself() -> None:
    assert differences("sglang", "sglang") == []
    assert "everything alike" in printed("sglang", "--against", "sglang")


def test_differences_are_the_values_that_are_not_equal() -> None:
    """Each side's value and source stand beside each other, whichever preset is named first."""
    there, back = differences("sglang", "vllm_v1"), differences("vllm_v1", "sglang")
    assert {(each.name, *each.values) for each in there} == {(each.name, *each.values[::-1]) for each in back}
    same = {row.name for row in rows("sglang")} - {each.name for each in there}
    other = {row.name: row.value for row in rows("vllm_v1")}
    assert all(row.value == other[row.name] for row in rows("sglang") if row.name in same)
    found = json.loads(printed("sglang", "--against", "vllm_v1", "--json"))
    assert found["presets"] == ["sglang", "vllm_v1"]
    assert [each["name"] for each in found["differences"]] == [each.name for each in there]


def test_without_a_name_all_presets_are_listed_with_what_they_differ_in() -> None:
    text = printed()
    assert all(name in text or name.replace("_adaptive", "") in text for name in NAMES)
    found = json.loads(printed("--json"))
    assert [each["preset"] for each in found["presets"]] == list(NAMES)
    assert all(len(set(map(str, each["values"].values()))) > 1 for each in found["differences"])


@pytest.mark.parametrize("words", [["sglan"], ["sglang", "--against", "nope"], ["--against", "sglang"]])
def test_a_wrong_name_is_told_with_those_there_are(words: list[str]) -> None:
    found = CliRunner().invoke(app, words)
    assert isinstance(found.exception, InputError)
    assert "sglang" in str(found.exception) or "PRESET" in str(found.exception)


def test_values_read_as_people_write_them() -> None:
    assert [value_text(each) for each in (True, False, (), (1, 2, 8), 0.7, 0, "first")] == [
        *("yes", "no", "none", "1 to 8", "0.7", "0", "first")
    ]
