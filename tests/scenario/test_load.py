"""What a good file means, and where the mistakes of a bad one are."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.errors import InputError, Problem, ScenarioError
from sim.policies.custom import CustomConfig
from sim.scenario.load import expand, load_scenario, read_scenario
from sim.scenario.model import Scenario
from sim.scenario.nodes import parse_yaml
from sim.scenario.overlay import resolve, with_value
from sim.scenario.shape import at
from sim.workload.arrival_config import PoissonArrival
from tests.scenario.support import VALID, problems, read


def rate(scenario: Scenario) -> float:
    """Request rate of a Poisson scenario, per second."""
    assert isinstance(scenario.workload.arrival, PoissonArrival)
    return scenario.workload.arrival.request_rate


def test_off_is_a_policy_and_not_false() -> None:
    """YAML 1.1 reads ``off`` as false; YAML 1.2 and this reader do not."""
    assert parse_yaml("[off, on, yes, no, y, 1:30, 0x10, 010]", "f").data == [
        *("off", "on", "yes", "no", "y", "1:30", "0x10"),
        10,
    ]


def test_units_become_plain_numbers() -> None:
    scenario = read(VALID).scenario
    assert rate(scenario) == 4.0
    assert (scenario.slo.ttft, scenario.slo.tpot) == (1_000_000_000, 40_000_000)


def test_every_combination_of_swept_values_is_a_cell_and_the_last_varies_fastest() -> None:
    cells = read(VALID).cells
    assert [cell.label for cell in cells] == [f"{r}/s, seqs={n}" for r in (2, 4, 8) for n in (32, 64)]
    assert [(rate(c.scenario), c.scenario.engine.max_num_seqs) for c in cells] == [
        (r, n) for r in (2.0, 4.0, 8.0) for n in (32, 64)
    ]


def test_a_cell_differs_from_the_scenario_in_the_swept_values_alone() -> None:
    loaded = read(VALID)
    same = {"workload", "engine", "sweep"}
    for cell in loaded.cells:
        assert cell.scenario.sweep == {}
        assert cell.scenario.model_dump(exclude=same) == loaded.scenario.model_dump(exclude=same)


def test_expanding_again_gives_the_same_cells() -> None:
    loaded = read(VALID)
    assert expand(loaded.scenario) == loaded.cells
    assert expand(pickle.loads(pickle.dumps(loaded.scenario))) == loaded.cells


def test_without_a_sweep_there_is_one_cell() -> None:
    [cell] = read(VALID.partition("sweep:")[0]).cells
    assert cell.label == "base"
    assert cell.settings == ()


def test_a_swept_value_need_not_be_written_elsewhere() -> None:
    assert [rate(cell.scenario) for cell in read(VALID.replace(", request_rate: 4/s", "")).cells[::2]] == [
        2,
        4,
        8,
    ]


def test_several_profiles_make_a_cell_each() -> None:
    text = VALID.replace(
        "profile: llama-3.1-8b-h100", "profiles: {H100: llama-3.1-8b-h100, A100: llama-3.1-8b-a100}"
    )
    cells = read(text).cells
    assert [cell.label for cell in cells[::6]] == ["H100, 2/s, seqs=32", "A100, 2/s, seqs=32"]
    assert cells[-1].scenario.profile == "llama-3.1-8b-a100"
    assert cells[-1].scenario.profile_path.name == "llama-3.1-8b-a100.json"


def test_items_of_a_list_are_swept_by_name_or_number() -> None:
    classes = "  classes: [{name: chat, share: 1}]\n"
    text = VALID.replace("  num_requests: 500\n", f"  num_requests: 500\n{classes}")
    for item in ("chat", "0"):
        swept = text.replace("engine.max_num_seqs: [32, 64]", f"workload.classes.{item}.slo: [{{tpot: 9ms}}]")
        assert read(swept).cells[0].scenario.slos["chat"].tpot == 9_000_000


def test_the_baseline_is_the_first_off_or_the_first_or_as_stated() -> None:
    base = VALID.partition("policies:")[0]
    assert read(base + "policies: [oracle, off]\n").scenario.baseline == "off"
    assert read(base + "policies: [oracle, goodput]\n").scenario.baseline == "oracle"
    assert read(base + "policies: [oracle, off]\nrun: {baseline: oracle}\n").scenario.baseline == "oracle"


def test_the_depth_is_the_deepest_policys_within_the_drafters_or_as_stated() -> None:
    loaded = read(VALID)
    drafter = loaded.scenario.drafter_of(loaded.files.profile("llama-3.1-8b-h100"))
    assert drafter is not None
    assert loaded.scenario.max_depth(drafter) == 7
    assert loaded.scenario.max_depth(drafter.model_copy(update={"max_depth": 4})) == 4
    assert loaded.scenario.max_depth(None) == 0
    stated = read(VALID.replace("run: {", "run: {max_depth: 5, ")).scenario
    assert stated.max_depth(drafter) == 5


def test_classes_fall_back_to_the_scenarios_acceptance_and_slo() -> None:
    own = "{name: code, share: 30%, slo: {ttft: 2s}, acceptance: {process: iid, alpha: 0.9}}"
    text = VALID.replace(
        "  num_requests: 500\n", f"  num_requests: 500\n  classes: [{{name: chat, share: 0.7}}, {own}]\n"
    )
    scenario = read(text).scenario
    assert scenario.acceptances[0] == scenario.acceptance
    assert scenario.acceptances[1] == scenario.workload.classes[1].acceptance
    assert [scenario.slos[name].ttft for name in ("chat", "code")] == [10**9, 2 * 10**9]


def test_every_class_has_a_tpot_limit_for_the_engine_also_where_none_is_stated() -> None:
    classes = "  classes: [{name: chat, share: 0.7}, {name: code, share: 0.3, slo: {tpot: 30ms}}]\n"
    with_classes = VALID.replace("  num_requests: 500\n", f"  num_requests: 500\n{classes}")
    own = read(with_classes).scenario.tpot_limits_ns
    none = read(with_classes.replace(", slo: {tpot: 30ms}", "")).scenario
    stated = (none.slo.tpot or 0,)
    assert own == (*stated, 30_000_000)
    assert none.tpot_limits_ns == stated * 2
    assert read(VALID).scenario.tpot_limits_ns == stated


@pytest.mark.parametrize(("written", "seeds"), [("3", (0, 1, 2)), ("[5, 2]", (5, 2)), ("1", (0,))])
def test_seeds_are_a_count_or_a_list(written: str, seeds: tuple[int, ...]) -> None:
    assert read(VALID.replace("seeds: [1, 2]", f"seeds: {written}")).scenario.run.seeds == seeds


def test_overrides_are_checked_like_the_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(VALID)
    assert load_scenario(path, {"run.seeds": [9]}).run.seeds == (9,)
    with pytest.raises(ScenarioError, match=r"run\.seeds: 0 seeds cannot be run"):
        load_scenario(path, {"run.seeds": 0})


def test_the_name_is_by_default_the_files(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(VALID.replace("name: small\n", ""))
    assert load_scenario(path).name == "mine"
    assert {cell.scenario.name for cell in read_scenario(path).cells} == {"mine"}


def test_a_byte_order_mark_is_no_mistake(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + VALID.encode())
    assert load_scenario(path).name == "small"


def test_paths_count_from_the_scenarios_folder(tmp_path: Path) -> None:
    shipped = read(VALID).scenario.profile_path
    (tmp_path / "mine.json").write_bytes(shipped.read_bytes())
    path = tmp_path / "mine.yaml"
    path.write_text(VALID.replace("llama-3.1-8b-h100", "mine.json"))
    assert load_scenario(path).profile_path == tmp_path / "mine.json"


def test_an_own_policy_is_found_without_running_it(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("print('ran')\nraise SystemExit\nclass Deep: ...\n")
    path = tmp_path / "mine.yaml"
    path.write_text(VALID.replace("- oracle", "- mine:Deep\n  - {policy: 'mine:Deeper', label: x}"))
    with pytest.raises(ScenarioError) as caught:
        load_scenario(path)
    [problem] = caught.value.problems
    assert problem.message == "module 'mine' has no 'Deeper'; did you mean 'Deep'?"


def test_an_own_policy_keeps_its_parameters() -> None:
    text = VALID.replace(
        "- oracle", "- {policy: 'scenarios.examples.threshold:Threshold', params: {k: 2, on: true}}"
    )
    policy = read(text).scenario.policies[3]
    assert isinstance(policy, CustomConfig)
    assert policy.params == {"k": 2, "on": True}


def test_a_file_that_is_not_there_is_the_users_mistake(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        load_scenario(tmp_path / "none.yaml")
    with pytest.raises(InputError, match="cannot be read"):
        load_scenario(tmp_path)


def test_a_file_beyond_all_measure_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "big.yaml"
    path.write_bytes(b"x" * 2_000_000)
    with pytest.raises(ScenarioError, match="larger than 1000000 bytes"):
        load_scenario(path)


def test_problems_come_in_the_order_of_the_file_and_once() -> None:
    text = (
        VALID.replace("0.7", "7").replace("500", "none").replace("[2/s, 4/s", "[2, 4").replace("4/s}", "4}")
    )
    found = problems(text)
    places = [tuple(int(part) for part in each.split(":")[:2]) for each in found]
    assert places == sorted(places)
    assert len(found) == len(set(found)) == 5


def test_a_value_that_cannot_be_read_brings_no_second_message() -> None:
    """Nothing follows from a tagged num_requests, such as that a workload has no end."""
    assert problems(VALID.replace("500", "!!int x")) == [
        "8:17: workload.num_requests: 'x' is not int, as its tag says; remove the tag"
    ]


def test_a_mistake_in_one_section_does_not_hide_those_between_others() -> None:
    text = (
        VALID.replace("drafter: eagle3", "drafter: eagle")
        .replace("4/s}", "4}")
        .replace("seqs: 64", "seqs: x")
    )
    keys = [each.split(": ")[1] for each in problems(text)]
    assert keys == ["drafter", "workload.arrival.request_rate", "engine.max_num_seqs"]


def test_a_problem_reads_file_line_column_key_message() -> None:
    assert str(Problem(3, 7, "a.b", "is wrong; do right", "f.yaml")) == "f.yaml:3:7: a.b: is wrong; do right"


DATA = st.recursive(
    st.integers() | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)


@given(DATA, st.lists(st.sampled_from(["a", "b", "0", "1"]), min_size=1, max_size=3), st.integers())
def test_a_value_set_at_a_path_stands_there_and_the_data_is_not_changed(
    data: object, parts: list[str], value: int
) -> None:
    before = pickle.dumps(data)
    try:
        path = resolve(data, ".".join(parts))
    except ValueError:
        return
    assert at(with_value(data, path, value), path) == value
    assert pickle.dumps(data) == before
