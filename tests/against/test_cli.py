"""``leadline validate --against`` and ``leadline fit``: tables, JSON, files, messages, exit codes."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from calibrate.validate.cli import app as validate_app
from sim.against.bench import make_bench
from sim.against.cli import fit_app
from sim.against.compare import lines
from sim.against.readers import read_files
from sim.cli import app
from sim.scenario.load import load_scenario
from tests.against.truth import Hidden, measured

CASE_1 = (
    Path(__file__).resolve().parents[3]
    / "shared"
    / "groundtruth"
    / "a100_llama31_8b_eagle3_factorial_runs.csv"
)


app.add_typer(validate_app, name="validate")
app.add_typer(fit_app, name="fit")


def validate(*args: object) -> Result:
    return CliRunner().invoke(app, ["validate", *map(str, args)])


def fit(*args: object) -> Result:
    return CliRunner().invoke(app, ["fit", *map(str, args)])


def test_files_and_options_may_come_in_any_order(tmp_path: Path) -> None:
    path, files = measured(tmp_path, Hidden(), (2, 4))
    result = validate("--against", files[0], "--scenario", path, "--seeds", 1, "--against", files[1])
    assert result.exit_code == 0, result.output
    assert "c=2, k=3 · static(k=3)" in result.output
    assert "c=4, k=3 · static(k=3)" in result.output
    assert "TPOT mean" in result.output
    assert "Nothing points anywhere" in result.output


def test_json_has_every_metric_and_finding(tmp_path: Path) -> None:
    path, files = measured(tmp_path, Hidden(), (2,))
    data = json.loads(validate("--against", files[0], "--scenario", path, "--seeds", 1, "--json").output)
    metric = data["runs"][0]["metrics"]["tpot_mean_ms"]
    assert metric["error"] == pytest.approx(metric["simulated"] / metric["measured"] - 1)
    assert [each["suspect"] for each in data["findings"]] == [
        "lengths",
        "acceptance",
        "step cost",
        "queueing",
    ]


def test_fit_writes_a_scenario_that_loads(tmp_path: Path) -> None:
    path, files = measured(tmp_path, Hidden(), (2, 8))
    out = tmp_path / "out" / "fitted.yaml"
    result = fit("--against", files[0], files[1], "--scenario", path, "--seeds", 1, "--out", out)
    assert result.exit_code == 0, result.output
    assert "held out: c=8, k=3" in result.output
    assert load_scenario(out).profile == "cpu-small-88m-fitted.json"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ([], "give --scenario"),
        (["--scenario", "mine.yaml", "--set", "nothing"], "is not PATH=VALUE"),
        (["--scenario", "mine.yaml", "--policy", "k9"], "none is called 'k9'"),
        (["--scenario", "mine.yaml", "--set", "policies=[off]"], "measured at depth 3"),
    ],
)
def test_what_is_missing_is_said_with_exit_code_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: list[str], message: str
) -> None:
    _, files = measured(tmp_path, Hidden(), (2,))
    monkeypatch.chdir(tmp_path)
    result = validate("--against", files[0], *more)
    assert result.exit_code == 2
    assert message in result.output


def test_settings_on_the_command_line_change_the_scenario(tmp_path: Path) -> None:
    path, files = measured(tmp_path, Hidden(), (4,))
    more = ("--set", "engine.step_overhead=20ms", "--json")
    slow = validate("--against", files[0], "--scenario", path, "--seeds", 1, *more)
    finding = json.loads(slow.output)["findings"][2]
    assert finding["verdict"] == "cannot tell"
    assert "-20." in finding["text"] or "-19." in finding["text"]


def test_options_of_the_engine_that_runs_here_are_refused_beside_results_all_at_once() -> None:
    result = validate("--against", "x.json", "--quick", "--seed", 3, "--engine", "reference", "--out", "y")
    assert result.exit_code == 2
    assert [line.split()[0] for line in result.output.splitlines()] == [
        "--engine",
        "--quick",
        "--seed",
        "--out",
    ]
    assert "without --against" in result.output


def test_options_of_results_are_refused_without_any() -> None:
    result = validate("--wide", "--policy", "off", "--engine", "vllm")
    assert result.exit_code == 2
    assert [line.split()[0] for line in result.output.splitlines()] == ["--policy", "--wide", "--engine"]
    assert "goes with --against FILE" in result.output


ALONE = """
import sys
sys.modules["torch"] = None  # every import of it fails
from calibrate.validate.cli import app as validate_app
from sim.cli import app
app.add_typer(validate_app, name="validate")
app(["validate", *sys.argv[1:]])
"""


def without_torch(*args: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", ALONE, *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_results_are_compared_where_torch_is_not_installed(tmp_path: Path) -> None:
    path, files = measured(tmp_path, Hidden(), (2,))
    done = without_torch("--against", files[0], "--scenario", path, "--seeds", 1)
    assert done.returncode == 0, done.stderr
    assert "TPOT mean" in done.stdout


def test_the_engine_that_runs_here_says_that_it_needs_torch() -> None:
    done = without_torch("--quick")
    assert done.returncode == 2, done.stderr
    assert "validate needs torch" in done.stderr


# -- real runs -------------------------------------------------------------------------------------


def case_1_rows(concurrency: int) -> list[dict[str, str]]:
    if not CASE_1.exists():
        pytest.skip(f"published measurements are not here: {CASE_1}")
    text = [line for line in CASE_1.read_text().splitlines() if not line.startswith("#")]
    return [
        row
        for row in csv.DictReader(text)
        if row["workload"] == "gsm8k" and row["rep"] == "1" and int(row["concurrency"]) == concurrency
    ]


CASE_1_SCENARIO = """\
profile: llama-3.1-8b-a100
drafter: eagle3
acceptance: {process: per_position, unconditional: [.682, .470, .330, .239, .161]}
workload:
  arrival: {process: closed, max_concurrency: 8}
  lengths: {input: 900, output: 256}
  num_requests: 160
engine: {kv_blocks: 29734, max_num_batched_tokens: 2048}
policies: [off, {policy: static, k: 5}]
"""
"""GSM8K with eight examples in the prompt, about 900 tokens: the study does not state them."""


def test_real_runs_on_an_a100_are_met_within_a_tenth_in_tpot(tmp_path: Path) -> None:
    """Case 1 of the published measurements: A100, Llama-3.1-8B, vLLM 0.24.0, batch 8, rates as counted."""
    table = tmp_path / "runs.csv"
    rows = [
        "concurrency,requests,input_tokens,output_tokens,depth,tpot_mean_ms,ttft_mean_ms,acceptance_length"
    ]
    for row in case_1_rows(8):
        tpot = 1e3 / float(row["decode_tok_s_per_req"])
        rows.append(f"8,{row['nreq']},900,256,{row['k']},{tpot},{row['ttft_mean_ms']},{row['tau']}")
    table.write_text("\n".join(rows))
    scenario = tmp_path / "a100.yaml"
    scenario.write_text(CASE_1_SCENARIO)
    bench = make_bench(scenario, read_files([table]), {}, seeds=1)
    errors = {n: {line.metric: line.error for line in lines(bench, n)} for n in range(2)}
    assert all(abs(each["tpot_mean_ms"]) < 0.12 for each in errors.values()), errors
    drafted = next(each for each in errors.values() if "acceptance_length" in each)
    assert abs(drafted["acceptance_length"]) < 0.02
