"""Equal names, equal runs: everything that decides a run's bytes is in its identity."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import sim.api
from sim.scenario import catalogue
from sim.scenario.load import expand
from sim.scenario.model import Scenario
from sim.sweep.identity import code_files, identity, named_files, run_name, settings_of
from sim.sweep.prepare import prepare
from tests.sweep.support import small

SHIPPED = [name for name in catalogue.shipped("scenario") if "/" not in name]


@pytest.mark.parametrize("name", SHIPPED)
def test_every_file_that_a_run_reads_is_in_its_identity(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a shipped scenario looks up while a run is prepared is what the identity names."""
    scenario = expand(sim.api.load(name, quick=True))[0].scenario
    asked = {"profile": scenario.profile_path}
    for method in ("locate", "locate_acceptance"):
        monkeypatch.setattr(Scenario, method, _noted(getattr(Scenario, method), asked))
    prepare(scenario, scenario.policies[-1], 0)
    monkeypatch.undo()
    assert set(asked.values()) == {scenario.profile_path, *named_files(scenario).values()}


def _noted(
    locate: Callable[[Scenario, str], Path], asked: dict[str, Path]
) -> Callable[[Scenario, str], Path]:
    def noted(scenario: Scenario, name: str) -> Path:
        asked[name] = locate(scenario, name)
        return asked[name]

    return noted


def test_the_code_that_a_run_goes_through_is_in_its_identity() -> None:
    """Every module that making a run imports is among the digested files."""
    code = (
        "import sys, sim.sweep.task\n"
        "print(*(m.__file__ for name, m in sys.modules.items() if name.startswith('sim.')), sep='\\n')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {Path(line) for line in done.stdout.splitlines()}
    assert len(loaded) > 50
    assert loaded <= set(code_files())


SAME = [{"policies": [{"policy": "off", "label": "plain"}]}, {"slo": {"ttft": "1s"}}, {"run.warmup": "none"}]
OTHER = [
    {"workload.num_requests": 61},
    {"engine.max_num_seqs": 7},
    {"acceptance.mean": 0.71},
    {"slo": {"tpot": "50ms"}},
    {"run.max_depth": 4},
    {"profile": "llama-3.1-8b-a100"},
    {"profile_mode": "exact"},
    {"fleet.replicas": 2},
]


def _name(settings: dict[str, object], seed: int = 0) -> str:
    scenario = sim.api.load({**small().written, "sweep": {}}, settings)
    policy = scenario.policies[0]
    return run_name(identity(settings_of(scenario), scenario, policy, seed), policy)


@pytest.mark.parametrize("settings", SAME)
def test_what_only_names_or_measures_a_run_is_not_in_its_name(settings: dict[str, object]) -> None:
    assert _name(settings) == _name({})


def test_whatever_decides_a_run_is_in_its_name() -> None:
    names = [_name({}), _name({}, seed=1), *(_name(settings) for settings in OTHER)]
    assert len(set(names)) == len(names)
