"""The whole comparison on tiny models and stated costs, and what the command says to wrong options."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from calibrate.passes import BenchSpec, build_bench
from calibrate.profile import Profile, load_profile
from calibrate.session import Parts
from calibrate.timing.cpu import CpuTimer
from calibrate.timing.samples import Limits
from calibrate.validate import cli, plan, report
from calibrate.validate.measures import COMPARED, JUDGED
from calibrate.validate.plan import Plan, Size
from calibrate.validate.reference import Finding, Referee
from sim.cli import app
from tests.engine.modelled import linear_profile

SMALL = Size(low=1, middle=2, full=3, own=2, runs=2, calibration_s=1, quick=True)
POLICIES = 5
HASTY = Limits(warmup_s=0.0, settle_s=0.0, window_s=1e-4, relative=1.0, cap_s=0.01)


@pytest.fixture(scope="module")
def finding(tmp_path_factory: pytest.TempPathFactory) -> Finding:
    folder = tmp_path_factory.mktemp("validate")
    options = cli._options("tiny", "draft", "cpu", 3, SMALL, plan.REACH)
    drafters = {name: (d.kind, d.build(d.config, name)) for name, d in options.drafters.items()}
    spec = BenchSpec(options.preset.shape, drafters, max_sequences=16, max_context=256)
    parts: Any = Parts(build_bench(spec), {"cpu": CpuTimer()}, device=None, machine=None)  # type: ignore[arg-type]
    profile = _profile()
    served = Plan(plan.write_profile(profile, folder, "calibrated"), "draft", plan.built_in(SMALL))
    return Referee(options, parts, served, SMALL, seed=3, say=lambda text: None, limits=HASTY).run(profile)


def _profile() -> Profile:
    profile = linear_profile(0.5, 0.01, draft=(0.3, 0.01, 0.2))
    return profile.model_copy(update={"drafters": {"draft": profile.drafters["d"]}})


def test_every_load_meets_every_policy_twice(finding: Finding) -> None:
    cells = finding.verdict.cells
    assert [cell.load for cell in cells] == ["low"] * POLICIES + ["middle"] * POLICIES + ["full"] * POLICIES
    assert all(len(cell.runs) == len(cell.step_errors) == SMALL.runs for cell in cells)
    assert len(finding.anchors_us) == 1 + SMALL.runs * 3


def test_luck_is_shared_so_acceptance_hardly_differs(finding: Finding) -> None:
    """At full load all requests are there from the start; with fixed depths not even steps depend on time."""
    fixed = [cell for cell in finding.verdict.cells if cell.load == "full" and "static" in cell.policy]
    for cell in fixed:
        for name in ("acceptance_length", "steps"):
            assert cell.compared(name).engine == (cell.simulated[name],) * SMALL.runs


def test_every_policy_has_a_loop_of_its_own(finding: Finding) -> None:
    policies = [cell.policy for cell in finding.verdict.cells[:POLICIES]]
    assert list(finding.overhead.loops) == policies
    assert all(loop.step_ns + loop.sequence_ns > 0 for loop in finding.overhead.loops.values())
    assert finding.overhead.verify > 0


def test_the_report_has_every_cell_and_says_how_it_ended(finding: Finding, tmp_path: Path) -> None:
    text = list(report.lines(finding))
    assert sum(line.startswith(("low", "middle", "full")) for line in text) == 3 * POLICIES * len(JUDGED)
    assert text[-1] == ("passed" if finding.verdict.passed else "failed")
    report.write(finding, tmp_path / "out.json")
    data = json.loads((tmp_path / "out.json").read_text())
    assert data["seed"] == 3
    assert [set(cell["metrics"]) for cell in data["cells"]] == [set(COMPARED)] * 3 * POLICIES


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--engine", "vllm"], "'vllm' is not an engine"),
        (["--device", "tpu"], "'tpu' is not one of cpu, cuda"),
        (["--model", "nothing"], "'nothing' is no file"),
        (["--drafter", "eagle9"], "'eagle9' is not one of"),
    ],
)
def test_wrong_options_are_said_before_anything_runs(given: list[str], said: str) -> None:
    app.add_typer(cli.app, name="validate")
    result = CliRunner().invoke(app, ["validate", "--quick", *given])
    assert result.exit_code == 2
    assert said in result.output


def test_a_profile_file_is_sealed(tmp_path: Path) -> None:
    path = plan.write_profile(_profile(), tmp_path, "p")
    assert load_profile(path).seal
