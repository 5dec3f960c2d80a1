"""``leadline export`` from the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from sim.errors import InputError
from sim.export import loss
from sim.export.cli import app
from sim.export.registry import ENGINES
from sim.scenario.load import load_scenario
from sim.sweep.results import Finished, RunKey
from sim.sweep.run import run_scenario
from sim.sweep.saved import save
from sim.sweep.task import Task
from tests.export.wishes import flags
from tests.results import build
from tests.scenario.support import VALID

TEXT = (
    VALID.replace("num_requests: 500", "num_requests: 60")
    .replace("max_num_seqs: 64", "max_num_seqs: 16")
    .replace("  engine.max_num_seqs: [32, 64]\n", "")
    .replace("[2/s, 4/s, 8/s]", "[4/s]")
    .replace("  - oracle\n", "  - mlc_auto\n  - oracle\n")
    .replace("metric: goodput", "metric: tpot")
    .replace("warmup: {requests: 50}", "warmup: none")
)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A results folder, run once for all tests here."""
    folder = tmp_path_factory.mktemp("small")
    (folder / "small.yaml").write_text(TEXT)
    save(run_scenario(load_scenario(folder / "small.yaml"), out=folder / "run"), folder / "run")
    return str(folder / "run")


def run(*args: object) -> str:
    result = CliRunner().invoke(app, [str(arg) for arg in args])
    if result.exception is not None:
        raise result.exception
    return result.stdout


def pasted(text: str) -> list[str]:
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def test_the_recommended_settings_stand_beside_best_static_and_off(small: str) -> None:
    text = run("vllm", small)
    lines = pasted(text)
    assert lines
    assert all(flags(line)["speculative-config"]["method"] == "eagle3" for line in lines)
    assert "# leave --speculative-config out" in text
    assert "± " in text


@pytest.mark.parametrize("engine", ENGINES)
def test_runs_of_another_engine_are_said_to_be(small: str, engine: str) -> None:
    """The scenario names vLLM's preset: its own settings need no note, those of others do."""
    found = CliRunner().invoke(app, [engine, small, "--no-simulate"])
    assert ("simulated with the preset vllm_v1" in found.stderr) is (engine != "vllm")
    assert "note:" not in found.stdout


@pytest.mark.parametrize("engine", ENGINES)
def test_what_stands_for_a_policy_is_simulated_against_it(small: str, engine: str) -> None:
    data: dict[str, Any] = json.loads(run(engine, small, "--policy", "mlc_auto", "--json"))
    chosen = data["loads"][0]["settings"][0]
    assert chosen["policy"] == "mlc_auto"
    assert "the nearest that this engine has" in chosen["remarks"][0]
    assert chosen["lost"]["ratio"] == pytest.approx(1, abs=0.5)


def test_a_table_that_is_the_policys_own_loses_nothing(small: str) -> None:
    """MLC's rule is a table over the batch; in vLLM's words it is the same policy, but for prefills."""
    data = json.loads(run("vllm", small, "--policy", "mlc_auto", "--json"))
    assert data["loads"][0]["settings"][0]["lost"]["ratio"] == pytest.approx(1, abs=0.02)


def test_simulation_can_be_left_out(small: str) -> None:
    assert "was not simulated" in run("vllm", small, "--policy", "mlc_auto", "--no-simulate")


def test_settings_and_the_files_they_name_are_written(small: str, tmp_path: Path) -> None:
    run("sglang", small, "--policy", "mlc_auto", "--no-simulate", "--out", tmp_path / "out")
    written = sorted(
        str(p.relative_to(tmp_path / "out")) for p in (tmp_path / "out").rglob("*") if p.is_file()
    )
    assert "0-4_s/chosen/speculative_adaptive.json" in written
    assert "0-4_s/chosen/settings" in written
    assert "0-4_s/off/settings" in written


def test_files_of_an_earlier_export_go_and_nothing_else_does(small: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run("sglang", small, "--policy", "mlc_auto", "--no-simulate", "--out", out)
    (out / "0-4_s" / "chosen" / "notes.txt").write_text("mine")
    run("vllm", small, "--no-simulate", "--out", out)
    chosen = sorted(path.name for path in (out / "0-4_s" / "chosen").iterdir())
    assert chosen == ["notes.txt"]
    assert not list(out.rglob("speculative_adaptive.json"))
    assert (out / "0-4_s" / "off" / "settings").is_file()


@pytest.mark.parametrize("unstable", [(True, False), (False, True), (True, True)])
def test_what_cannot_be_told_says_which_of_the_two_is_unstable(
    small: str, monkeypatch: pytest.MonkeyPatch, unstable: tuple[bool, bool]
) -> None:
    pair = dict(zip(("mlc_auto", loss.LABEL), unstable, strict=True))

    def measured(tasks: list[Task], records: object) -> dict[RunKey, Finished]:
        return {
            (t.cell.label, t.policy.title, t.seed): Finished(
                build.metrics(pair[t.policy.title], tpot_mean_ms=9.0), {}, 0.0
            )
            for t in tasks
        }

    monkeypatch.setattr(loss, "measured", measured)
    monkeypatch.setattr(loss, "run_task", lambda task: None)
    chosen = json.loads(run("vllm", small, "--policy", "mlc_auto", "--json"))["loads"][0]["settings"][0]
    wished = {(True, False): "the policy itself is unstable", (False, True): "the policy itself is not"}
    assert wished.get(unstable, "as the policy itself is") in chosen["remarks"][0]
    assert chosen["lost"] is None


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((), "leadline export ENGINE RUN_OR_SCENARIO; engines are vllm, sglang, trtllm, llamacpp"),
        (("vlm", "SCENARIO"), "there is no engine 'vlm'; did you mean 'vllm'"),
        (("vllm", "SCENARIO", "--cell", "9/s"), "there is no cell '9/s'"),
        (("vllm", "SCENARIO", "--policy", "oracle"), "sees the future"),
    ],
)
def test_wrong_arguments_are_named(small: str, args: tuple[str, ...], message: str) -> None:
    with pytest.raises(InputError, match=message.replace("/", "/")):
        run(*(small if arg == "SCENARIO" else arg for arg in args))
