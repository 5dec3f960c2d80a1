"""Everything that ships can be found by name, read, checked and validated by the schema."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sim.errors import InputError
from sim.scenario.catalogue import copy_scenario, described, locate, shipped
from sim.scenario.lint import lint
from sim.scenario.load import read_document, read_scenario
from sim.scenario.schema import scenario_schema
from tests.scenario.support import BROKEN, VALID, read

SCENARIOS = shipped("scenario")


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_shipped_scenario_is_valid_and_says_what_it_is(name: str) -> None:
    loaded = read_scenario(SCENARIOS[name])
    assert loaded.scenario.description or name.startswith("published/")
    assert {each.id for each in lint(loaded)} <= {"one-seed", "few-requests", "threshold-in-range"} | {
        *("budget-caps-batch", "graph-too-small", "threshold-unreachable")
    }


def test_every_kind_has_its_names_and_a_line_about_each() -> None:
    assert "own-policy" in described("scenario")
    assert "eagle3" in described("profile")["llama-3.1-8b-h100"]
    assert described("workload")["azure-2023-conversation"]


def test_a_name_is_found_from_anywhere_and_a_path_from_the_folder(tmp_path: Path) -> None:
    named = locate("profile", "llama-3.1-8b-h100", tmp_path)
    shutil.copy(named, tmp_path / "mine.json")
    assert locate("profile", "mine.json", tmp_path) == tmp_path / "mine.json"
    assert locate("profile", str(named), tmp_path) == named


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("llama-3.1-8b-h10", "did you mean 'llama-3.1-8b-h100'"),
        ("mine.json", "no file 'mine.json'; paths count"),
        ("x" * 5000, "known are"),
        ("a\0b", "there is no profile"),
        ("", "there is no profile ''"),
    ],
)
def test_a_name_that_is_not_there_says_what_is(name: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        locate("profile", name, tmp_path)


def test_a_copy_is_the_same_file_and_never_overwrites(tmp_path: Path) -> None:
    copied = copy_scenario("own-policy", tmp_path, force=False)
    assert copied == tmp_path / "own-policy.yaml"
    assert copied.read_bytes() == SCENARIOS["own-policy"].read_bytes()
    assert read_scenario(copied).scenario == read_scenario(copied).scenario
    copied.write_text("mine")
    with pytest.raises(InputError, match="exists already"):
        copy_scenario("own-policy", copied, force=False)
    assert copied.read_text() == "mine"
    copy_scenario("own-policy", copied, force=True)
    assert copied.read_bytes() == SCENARIOS["own-policy"].read_bytes()
    with pytest.raises(InputError, match="did you mean 'own-policy'"):
        copy_scenario("own-polcy", tmp_path, force=False)
    with pytest.raises(InputError, match="cannot be written"):
        copy_scenario("own-policy", tmp_path / "none" / "x.yaml", force=False)


def test_the_schema_is_one_and_takes_what_ships() -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    schema = scenario_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    for path in SCENARIOS.values():
        assert list(validator.iter_errors(read_document(path).data)) == []
    assert list(validator.iter_errors(read(VALID).document.data)) == []


@pytest.mark.parametrize(
    "stem",
    [
        *(
            "typo-at-the-top",
            "typos-at-every-level",
            "rate-without-unit",
            "wrong-units",
            "probability-above-one",
        ),
        *("true-where-a-number-belongs", "unknown-policy", "policy-without-its-depth", "no-policies"),
        *("policies-of-all-wrong-forms", "run-control", "seeds-twice", "seeds-negative", "engine-preset"),
        *(
            "acceptance-without-process",
            "rate-in-a-closed-loop",
            "table-with-short-rows",
            "sweep-of-one-value",
        ),
    ],
)
def test_the_schema_refuses_what_the_loader_refuses_by_form(stem: str) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    [path] = (BROKEN / "scenarios").glob(f"*-{stem}.yaml")
    assert not jsonschema.Draft202012Validator(scenario_schema()).is_valid(read_document(path).data)


def test_the_schema_describes_every_key_at_the_top() -> None:
    for name, entry in scenario_schema()["properties"].items():
        assert entry.get("description"), name
