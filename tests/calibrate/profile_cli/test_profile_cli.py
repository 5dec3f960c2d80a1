"""`leadline profile`: what it prints agrees with the simulator, what it draws is a picture, errors exit 2."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from typer.testing import CliRunner

from calibrate.cells import Cell, Measured
from calibrate.profile import Curve, Profile, Term, load_profile, save_profile
from calibrate.profile_cli import app
from calibrate.profile_plot import BREADTH, DEPTH, plot
from calibrate.profile_view import BATCHES, DEPTHS, round_ns, shipped
from sim.cost.step_cost import StepCost

H100 = "llama-3.1-8b-h100"
SVG = "{http://www.w3.org/2000/svg}"


def _run(*arguments: str | Path, code: int = 0) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result.output


@pytest.mark.parametrize("name", sorted(shipped()))
def test_a_round_takes_what_the_simulator_says(name: str) -> None:
    profile = load_profile(shipped()[name])
    for drafter in profile.drafters.values():
        cost = StepCost(profile, drafter, 4096)
        for batch in BATCHES:
            simulated = cost.round_ns(batch, list(DEPTHS), 1024 * batch)
            shown = [round_ns(profile, drafter, batch, depth, 1024) for depth in DEPTHS]
            assert shown == pytest.approx(simulated.tolist(), rel=1e-9)


def test_list_has_every_shipped_profile() -> None:
    printed = _run("list")
    assert all(name in printed for name in shipped())


def test_show_prints_provenance_terms_and_steps() -> None:
    printed = _run("show", H100, "--context", "512", "--drafter", "eagle3")
    for words in ("composed", "±10%", "aic-gemm-h100_sxm", "attention_decode", "assumed target.host", "k=7"):
        assert words in printed
    profile = load_profile(shipped()[H100])
    assert f"{round_ns(profile, profile.drafters['eagle3'], 128, 3, 512) / 1e6:.2f}" in printed


def test_diff_of_a_profile_with_itself_is_one_everywhere() -> None:
    printed = _run("diff", H100, H100)
    assert printed.count(" 1.00") == len(BATCHES) * len(DEPTHS)


def _with_curve(x: tuple[int, ...], ns: tuple[float, ...]) -> Profile:
    """A shipped profile whose verify pass is one curve, with no more in it."""
    profile = load_profile(shipped()[H100])
    term = Term(name="step", mark="measured", source="t", curve=Curve(x=x, ns=ns))
    target = profile.target.model_copy(update={"verify": (term,)})
    return profile.model_copy(update={"target": target, "max_tokens": x[-1], "error": None})


def test_check_says_how_much_is_assumed_and_refuses_a_flat_profile(tmp_path: Path) -> None:
    assert "may be used" in _run("check", H100)
    save_profile(_with_curve((1, 64), (5e6, 5e6)), tmp_path / "flat.json")
    printed = _run("check", tmp_path / "flat.json", code=1)
    assert "refused: target.verify: is flat" in printed
    assert "error: is not stated" in printed


def test_a_profile_of_one_point_is_drawn() -> None:
    root = ET.fromstring(plot(_with_curve((1,), (5e6,))))
    assert len(root.findall(f"{SVG}circle")) == 1


def test_show_says_why_a_profile_was_refused(tmp_path: Path) -> None:
    profile = load_profile(shipped()[H100]).model_copy(update={"refused": ("target.verify: is flat",)})
    save_profile(profile, tmp_path / "p.json")
    assert "refused target.verify: is flat" in _run("show", tmp_path / "p.json")


@pytest.mark.parametrize("name", sorted(shipped()))
def test_every_shipped_profile_may_be_used_and_drawn(name: str) -> None:
    assert "may be used" in _run("check", name)
    root = ET.fromstring(plot(load_profile(shipped()[name])))
    assert len(root.findall(f"{SVG}polyline")) >= 2


def test_the_picture_of_a_composed_profile_shows_its_measured_points(tmp_path: Path) -> None:
    path = tmp_path / "p.svg"
    assert _run("plot", H100, "--out", path).strip() == str(path)
    root = ET.parse(path).getroot()
    words = [text.text for text in root.iter(f"{SVG}text")]
    profile = load_profile(shipped()[H100])
    curve = profile.target.verify[0].curve
    assert curve is not None
    assert len(root.findall(f"{SVG}circle")) == sum(x <= 2048 for x in curve.x)
    assert "breadth" in words
    assert "depth" in words
    assert any(word and word.startswith("ridge") for word in words)


def _measured(sequences: int, width: int, us: float) -> Measured:
    cell = Cell.model_validate({"pass": "verify", "sequences": sequences, "width": width, "context": 256})
    return Measured(cell=cell, samples_us=(us,), median_us=us, ci_us=(0.9 * us, 1.1 * us))


def _with_cells(profile: Profile) -> Profile:
    cells = (_measured(1, 8, 7000), _measured(8, 1, 7500), _measured(4, 4, 7200))
    return profile.model_copy(update={"cells": cells})


def test_measured_cells_are_dots_with_intervals_coloured_by_breadth_and_depth() -> None:
    root = ET.fromstring(plot(_with_cells(load_profile(shipped()[H100]))))
    dots = root.findall(f"{SVG}circle")
    colours = [dot.get("fill") for dot in dots]
    assert len(dots) == 3
    assert colours.count(DEPTH) == 1
    assert colours.count(BREADTH) == 1
    assert "3 measured steps" in ET.tostring(root, encoding="unicode")


def test_the_ridge_of_a_floor_and_a_slope_is_their_ratio(tmp_path: Path) -> None:
    """5 ms and 0.05 ms per token from 100 tokens on meet at 100 tokens."""
    table = tmp_path / "t.csv"
    table.write_text("n_tokens,ms\n1,5\n100,5\n1000,50\n")
    _run(
        "import",
        "csv",
        table,
        "--name",
        "r",
        "--device",
        "h100",
        "--config",
        "llama-3.1-8b",
        "--out",
        tmp_path,
    )
    ridge = load_profile(tmp_path / "r.json").ridge_tokens
    assert ridge == pytest.approx(100)


def test_import_writes_a_profile_and_says_what_it_assumed(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text("n_tokens,ms\n1,5\n64,6\n512,20\n")
    options = [
        "--name",
        "mine",
        "--device",
        "My GPU:80:3350:989:2",
        "--parameters",
        "8e9",
        "--kv-bytes",
        "131072",
    ]
    more = ["--drafter", "eagle3:eagle:0.5:0.4:5", "--error", "0.07", "--out", str(tmp_path)]
    printed = _run("import", "csv", str(table), *options, *more)
    assert "assumed target.verify: context" in printed
    profile = load_profile(tmp_path / "mine.json")
    assert (profile.device.name, profile.device.count) == ("My GPU", 2)
    assert profile.drafters["eagle3"].max_depth == 5
    assert profile.error is not None
    assert profile.error.relative == 0.07


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["show", "no-such"], "no-such: file: is neither a file nor a shipped profile"),
        (["show", H100, "--drafter", "x"], "has no 'x'; it has: eagle3, ngram"),
        (["import", "xls", "f"], "one of: csv, serving-log"),
        (["import", "csv"], "give at least one file"),
        (["import", "csv", "f", "--config", "llama-3.1-8b"], "--device: is missing"),
        (
            ["import", "csv", "f", "--device", "tpu", "--config", "llama-3.1-8b"],
            "is not a GPU with a datasheet",
        ),
        (["import", "csv", "f", "--device", "A:1:2", "--config", "llama-3.1-8b"], "is not NAME:GB"),
        (["import", "csv", "f", "--device", "h100"], "--config: is missing"),
        (["import", "csv", "f", "--device", "h100", "--config", "no.json"], "no.json: not a config.json"),
        (["import", "csv", "nofile", "--device", "h100", "--config", "llama-3.1-8b"], "cannot be read"),
        (
            ["import", "csv", "f", "--device", "h100", "--config", "llama-3.1-8b", "--select", "x"],
            "KEY=VALUE",
        ),
        (
            ["import", "csv", "f", "--device", "h100", "--config", "llama-3.1-8b", "--drafter", "x"],
            "is not NAME",
        ),
        (
            ["import", "csv", "f", "--device", "h100", "--config", "llama-3.1-8b", "--draft-kind", "x"],
            "is not one of draft_model",
        ),
        (
            ["import", "csv", "f", "--device", "x:0:1:1", "--config", "llama-3.1-8b"],
            "--device: x:0:1:1: memory_bytes is 0.0: Input should be greater than 0\n",
        ),
        (["plot", H100, "--out", "no/folder/p.svg"], "cannot be written"),
        (["plot", H100, "--out", "p.png"], "p.png: --out: is not an .svg file"),
        (["list", "no-such-folder"], "no profiles"),
    ],
)
def test_what_is_wrong_is_said_with_exit_code_2(arguments: list[str], words: str) -> None:
    assert words in _run(*arguments, code=2)


def test_a_damaged_profile_is_refused_by_field(tmp_path: Path) -> None:
    data = json.loads(shipped()[H100].read_text())
    data["max_tokens"] = -1
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(data))
    assert "max_tokens" in _run("check", path, code=2)


def test_a_model_larger_than_its_device_is_refused(tmp_path: Path) -> None:
    profile = load_profile(shipped()[H100])
    small = profile.device.model_copy(update={"memory_bytes": 8e9})
    save_profile(profile.model_copy(update={"device": small}), tmp_path / "p.json")
    assert "16.1 GB do not fit" in _run("check", tmp_path / "p.json", code=1)


def test_formats_lists_every_importer() -> None:
    printed = _run("formats")
    for name in ("csv", "serving-log", "vllm-cost", "sglang-sps", "trtllm-cost", "vidur", "aiconfigurator"):
        assert name in printed
