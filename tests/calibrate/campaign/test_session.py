"""From options to a profile, and the command line, on a fake machine."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from calibrate import cli, session
from calibrate.campaign import Outcome
from calibrate.cells import Cell
from calibrate.configs import from_config
from calibrate.fit.report import Machine
from calibrate.journal import Journal, JournalError
from calibrate.presets import PRESETS, PresetError, drafters_of, find_preset
from calibrate.profile import Device, Profile, load_profile
from calibrate.session import Options, Parts
from calibrate.timing.cuda_timer import cuda_timers
from calibrate.timing.fake import FakeBench, FakeClock, fake_timer
from calibrate.timing.timer import Run
from tests.calibrate.conftest import SHARED
from tests.calibrate.timing.fake_cuda import FakeCuda

RUNNER = CliRunner()
DEVICE = Device(name="fake", memory_bytes=1e9, bandwidth_bytes_per_s=1e10, peak_flops_per_s=1e11)
OK, REFUSED, INTERRUPTED = 0, 2, 130


def cost(cell: Cell) -> float:
    """Microseconds: a floor, compute, sequences and the context read; a drafter's parts; acceptance."""
    if cell.pass_ == "accept":
        return 20 + 2 * cell.tokens
    if cell.pass_.startswith("draft"):
        return 100 + 3 * cell.tokens + 0.01 * cell.shape["context_tokens"]
    return 1000 + 60 * cell.tokens + 5 * cell.shape["sequences"] + 0.1 * cell.shape["context_tokens"]


class Fakes:
    """Stands in for the machine; ``use`` puts it in place of the real one."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.bench = FakeBench(cost, self.clock, noise=0.003)

    def parts(self, options: Options) -> Parts:
        return Parts(self.bench, {"cpu": fake_timer(self.clock)}, DEVICE, Machine(torch="none"))


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> Fakes:
    found = Fakes()
    monkeypatch.setattr(session, "build_parts", found.parts)
    return found


def _run(out: Path, *arguments: str, model: str = "tiny") -> tuple[int, str]:
    """The command on the fake machine; the tiny preset with one drafter, or all of another preset."""
    one = ["--drafter", "draft"] if model == "tiny" and "--drafter" not in arguments else []
    result = RUNNER.invoke(
        cli.app, ["--device", "cpu", "--model", model, "--out", str(out), *one, *arguments]
    )
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.output


def test_a_calibration_writes_a_profile_that_loads_and_says_how_it_was_made(
    fakes: Fakes, tmp_path: Path
) -> None:
    out = tmp_path / "small.json"
    code, output = _run(out, "--seed", "3", model="cpu-small")
    assert code == OK, output
    profile = load_profile(out)
    assert (profile.kind, profile.name, profile.dtype, profile.execution) == (
        "measured",
        "small",
        "float32",
        "cpu",
    )
    assert profile.method is not None
    assert (profile.method.threads, profile.method.seed, profile.method.clock) == (1, 3, "thread_cpu")
    assert set(profile.drafters) == {"draft", "eagle"}
    assert profile.target.work.parameters == pytest.approx(88.1e6, rel=1e-3)
    assert str(out) in output
    assert "held out" in output
    _prices_rounds(profile)


def _prices_rounds(profile: Profile) -> None:
    """The formula is met within a few percent by the fit, and rounds by the sum of their parts."""
    assert profile.fit["round"].in_sample is not None
    assert profile.fit["round"].in_sample.mean < 5
    assert profile.fit["verify"].leave_one_out is not None
    assert profile.fit["verify"].leave_one_out.mean < 2


def test_a_refused_profile_leaves_the_old_one_and_keeps_its_cells(fakes: Fakes, tmp_path: Path) -> None:
    """A machine that takes random times cannot be fitted."""
    fakes.bench.noise = 1.5
    out = _text(tmp_path / "p.json", "old")
    code, output = _run(out)
    assert code == REFUSED
    assert "refused: fit.verify" in output
    assert "was not written" in output
    assert load_profile(out.with_suffix(".refused.json")).cells
    assert out.read_text() == "old"
    assert len(session.journal_path(out).read_text().splitlines()) > 50


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_writes_what_there_is_and_resume_goes_on(
    fakes: Fakes, tmp_path: Path, sent: signal.Signals
) -> None:
    def fails(cell: Cell) -> None:
        if len(fakes.bench.prepared) == 40:
            os.kill(os.getpid(), sent)

    before = signal.getsignal(sent)
    fakes.bench.fails = fails
    out = tmp_path / "p.json"
    code, output = _run(out)
    assert code == INTERRUPTED, output
    assert "interrupted" in load_profile(out).notes
    assert signal.getsignal(sent) is before
    fakes.bench.fails = lambda cell: None
    prepared = len(fakes.bench.prepared)
    code, output = _run(out, "--resume")
    assert code == OK, output
    assert load_profile(out).notes.find("interrupted") < 0
    assert len(session.journal_path(out).read_text().splitlines()) == 1 + len(fakes.bench.prepared)
    assert len(fakes.bench.prepared) > prepared


@pytest.mark.parametrize("at", [0, 1, 4])
def test_an_early_interrupt_says_what_is_missing_and_ends_as_one(
    fakes: Fakes, tmp_path: Path, at: int
) -> None:
    def fails(cell: Cell) -> None:
        if len(fakes.bench.prepared) == at:
            raise KeyboardInterrupt

    fakes.bench.fails = fails
    code, output = _run(tmp_path / "p.json")
    assert code == INTERRUPTED, output
    assert "interrupted: --resume goes on" in output
    assert not (tmp_path / "p.json").exists()


def test_names_with_dots_keep_them_and_do_not_meet(fakes: Fakes, tmp_path: Path) -> None:
    for name in ("qwen3.5-27b", "qwen3.6-27b.json"):
        code, output = _run(tmp_path / name, "--drafter", "none", "--quick")
        assert code == OK, output
    assert {path.name for path in tmp_path.iterdir()} == {
        "qwen3.5-27b",
        "qwen3.5-27b.cells.jsonl",
        "qwen3.6-27b.json",
        "qwen3.6-27b.cells.jsonl",
    }
    assert load_profile(tmp_path / "qwen3.5-27b").name == "qwen3.5-27b"


@pytest.mark.parametrize("out", ["", "new/", "."])
def test_a_directory_is_refused_as_a_profile_before_anything_is_measured(
    fakes: Fakes, tmp_path: Path, out: str
) -> None:
    result = RUNNER.invoke(cli.app, ["--device", "cpu", "--model", "tiny", "--out", f"{tmp_path}/{out}"])
    assert result.exit_code == REFUSED
    assert "is a directory" in result.output
    assert not fakes.bench.prepared


def test_another_torch_or_driver_does_not_resume(tmp_path: Path) -> None:
    options = Options("x", PRESETS["tiny"], {}, "cpu", "float32", 1)
    journal = tmp_path / "cells.jsonl"
    Journal(journal, options.about("a", Machine(torch="2.13", driver="580.1"))).open(resume=False)
    for other, field in ((Machine(torch="2.14", driver="580.1"), "torch"), (Machine(torch="2.13"), "driver")):
        with pytest.raises(JournalError, match=f"{field} is "):
            Journal(journal, options.about("a", other)).open(resume=True)


def test_without_resume_finished_cells_are_not_overwritten(fakes: Fakes, tmp_path: Path) -> None:
    out = tmp_path / "p.json"
    _run(out, "--quick")
    code, output = _run(out, "--quick")
    assert code == REFUSED
    assert "--resume" in output


def test_other_options_do_not_resume(fakes: Fakes, tmp_path: Path) -> None:
    out = tmp_path / "p.json"
    _run(out, "--quick")
    code, output = _run(out, "--quick", "--resume", "--threads", "2")
    assert code == REFUSED
    assert "threads is 1 there and 2 now" in output


def test_skipped_cells_are_named_in_the_profile(fakes: Fakes, tmp_path: Path) -> None:
    def fails(cell: Cell) -> None:
        if cell.context == 64 and cell.sequences == 4:
            raise MemoryError("no room")

    fakes.bench.fails = fails
    out = tmp_path / "p.json"
    code, output = _run(out)
    assert code == OK, output
    assert "skipped" in output
    assert "no room" in load_profile(out).notes


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "nosuch"], "not one of: tiny, cpu-small"),
        (["--budget", "5"], "such as 90s, 5m or 1h"),
        (["--dtype", "int3"], "not one of auto, float32"),
        (["--device", "tpu"], "not one of auto, cpu, cuda"),
        (["--drafter", "medusa"], "NAME=KIND:config.json"),
        (["--sampling", "T=2"], "not one of greedy, T=1"),
    ],
)
def test_wrong_options_say_what_would_be_right(
    fakes: Fakes, tmp_path: Path, arguments: list[str], message: str
) -> None:
    code, output = _run(tmp_path / "p.json", *arguments)
    assert code == REFUSED
    assert message in " ".join(output.split())


def test_help_does_not_import_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert RUNNER.invoke(cli.app, ["--help"]).exit_code == OK


def test_without_torch_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    code, output = _run(tmp_path / "p.json")
    assert code == REFUSED
    assert "leadline[calibrate]" in output


def test_a_config_json_is_a_model_and_a_drafter(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    path = folder / "config.json"
    path.write_text(json.dumps(PRESETS["tiny"].config))
    preset = find_preset(str(path))
    assert preset.model == "mine"
    found = drafters_of(preset, [f"d=draft_model:{path}"])
    assert found["d"].kind == "draft_model"
    assert found["d"].build(found["d"].config, "d").parameters == preset.shape.parameters
    assert drafters_of(PRESETS["tiny"], ["none"]) == {}
    with pytest.raises(PresetError, match=r"is not a config\.json"):
        find_preset(str(_text(tmp_path / "broken.json", "{")))


def _text(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


PUBLISHED = [
    ("qwen3.5-27b", "model_configs/Qwen--Qwen3.5-27B", None),
    ("qwen3-8b", "model_configs/Qwen--Qwen3-8B", None),
    ("llama-3.1-8b", "model_configs/meta-llama--Meta-Llama-3.1-8B", None),
    ("qwen3-30b-a3b", "model_configs/Qwen--Qwen3-30B-A3B", None),
    ("qwen3.5-27b", "model_configs/Qwen--Qwen3.5-27B", "mtp"),
    ("qwen3-8b", "draft_configs/qwen3-8b-eagle3", "eagle3"),
    ("qwen3-8b", "draft_configs/qwen3-8b-dflash", "dflash"),
    ("llama-3.1-8b", "draft_configs/llama3-8B-eagle3", "eagle3"),
    ("qwen3-30b-a3b", "draft_configs/qwen3-30B-A3B-eagle3", "eagle3"),
]


@pytest.mark.parametrize(("preset", "file", "drafter"), PUBLISHED)
def test_presets_have_the_shapes_of_the_published_configs(
    preset: str, file: str, drafter: str | None
) -> None:
    path = SHARED / "data" / f"{file}.json"
    if not path.is_file():
        pytest.skip("the configs are not at ../shared/data")
    config, ours = json.loads(path.read_text()), PRESETS[preset]
    if drafter is None:
        assert from_config(config, ours.model) == ours.shape
    else:
        draft = ours.drafters[drafter]
        assert draft.build(config, "x") == draft.build(draft.config, "x")


def _on_stream(cuda: FakeCuda, path: Path) -> tuple[Options, Parts, Outcome]:
    """A quick campaign of Qwen3-8B with both drafters on a fake stream."""
    preset = PRESETS["qwen3-8b"]
    options = Options("fake-gpu", preset, preset.drafters, "cuda", "bfloat16", 1, quick=True)
    parts = Parts(_StreamBench(cuda), cuda_timers(cuda), DEVICE, Machine())
    journal = Journal(path / "cells.jsonl", {})
    journal.open(resume=False)
    return options, parts, session.run_campaign(options, parts, journal, 1e9, lambda step: None, cuda.now)


def test_the_cuda_grid_runs_through_graphs_and_eager_launches_to_a_profile(tmp_path: Path) -> None:
    options, parts, outcome = _on_stream(FakeCuda(launch_s=4e-6, sm_mhz=lambda: 1980.0), tmp_path)
    profile = session.to_profile(options, parts, outcome)
    assert profile.execution == "cuda_graph"
    assert profile.target.eager_extra
    assert set(profile.drafters) == {"eagle3", "dflash"}
    assert profile.machine is not None
    assert profile.machine.sm_clock_mhz == (1980, 1980, 1980)
    assert {m.cell.execution for m in profile.cells} == {"cuda_graph", "eager"}
    verify = [m for m in profile.cells if m.cell.pass_ == "verify" and m.cell.execution == "cuda_graph"]
    assert all(m.median_us == pytest.approx(cost(m.cell), abs=0.01) for m in verify)


def test_passes_that_cannot_be_captured_are_skipped_and_eager_ones_measured(tmp_path: Path) -> None:
    _, _, outcome = _on_stream(FakeCuda(refuses="operation not permitted"), tmp_path)
    assert {each.cell.execution for each in outcome.finished if each.measured} == {"eager"}
    assert {each.skipped for each in outcome.skipped} == {"operation not permitted"}


class _StreamBench(FakeBench):
    """Passes of 300 kernels on a fake stream; block drafters draft in one pass."""

    def __init__(self, cuda: FakeCuda) -> None:
        super().__init__(cost, cuda.clock)
        self.cuda = cuda

    def _run(self, cell: Cell) -> Run:
        return lambda: self.cuda.launch(1e-6 * cost(cell), kernels=300)


def test_the_command_joins_another_command_line_under_its_name(fakes: Fakes, tmp_path: Path) -> None:
    parent = typer.Typer()
    parent.command("other")(lambda: None)
    parent.add_typer(cli.app, name="calibrate")
    arguments = ["calibrate", "--device", "cpu", "--model", "tiny", "--drafter", "none", "--quick"]
    result = RUNNER.invoke(parent, [*arguments, "--out", str(tmp_path / "p.json")])
    assert result.exit_code == OK, result.output
    assert load_profile(tmp_path / "p.json").drafters == {}


def test_a_model_that_fits_keeps_all_its_layers_and_a_larger_one_those_that_fit() -> None:
    """Llama-3.1-8B in bfloat16: 16.1 GB of weights, of which 0.44 GB in each of 32 layers."""
    options = Options("x", PRESETS["llama-3.1-8b"], PRESETS["llama-3.1-8b"].drafters, "cuda", "bfloat16", 1)
    assert session.layers_that_fit(options.spec, "bfloat16", 80e9) is None
    layer = 2 * (4096 * 6144 + 4096 * 4096 + 3 * 4096 * 14336)
    outside = 2 * (2 * 128256 * 4096 + 424_689_664)
    expected = int((0.6 * 24e9 - outside) / layer)
    assert session.layers_that_fit(options.spec, "bfloat16", 24e9) == pytest.approx(expected, abs=1)


def test_fp8_halves_weights_and_keeps_the_cache() -> None:
    shape = PRESETS["qwen3-8b"].shape
    small, full = (session.work_of(shape, dtype) for dtype in ("fp8", "bfloat16"))
    assert small.weight_bytes == full.weight_bytes / 2
    assert small.kv_bytes_per_token == full.kv_bytes_per_token == 144 * 1024
