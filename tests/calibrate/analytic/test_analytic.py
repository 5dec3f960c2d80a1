"""Profiles from datasheets: bounds of physics, and their error where kernels were measured."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibrate.analytic import (
    BANDWIDTH,
    ERROR,
    LAUNCH_NS,
    Roofline,
    analytic_profile,
    compare,
    main,
    read_shape,
)
from calibrate.compose.catalogue import QWEN_27B
from calibrate.compose.evaluate import decode_shape, pass_ns
from calibrate.compose.gemm import gemm_table
from calibrate.compose.linear import linear_term
from calibrate.compose.model_files import target_shape
from calibrate.compose.tables import Folders, Ledger
from calibrate.configs import ShapeError
from calibrate.datasheets import GPUS, find_gpu
from calibrate.profile import Term, load_profile
from calibrate.shapes import Linear
from tests.calibrate.conftest import ROOT

SHIPPED = ("l4", "l40s", "rtx4090", "rtx5090", "mi300x")
PROFILES = ROOT / "scenarios" / "profiles"
LLAMA = read_shape("llama-3.1-8b")
COMPOSED_ERROR = 0.10


def _composed(name: str) -> tuple[Term, ...]:
    return load_profile(PROFILES / f"{name}.json").target.verify


@pytest.mark.parametrize("gpu", ["h100", "a100", "b200"])
def test_the_recipe_is_within_its_stated_error_where_kernels_were_measured(gpu: str) -> None:
    mean, _ = compare(Roofline(find_gpu(gpu)).verify(LLAMA), _composed(f"llama-3.1-8b-{gpu}"))
    assert mean + COMPOSED_ERROR <= ERROR.relative


@pytest.mark.parametrize("gpu", ["h100", "h200", "b200"])
def test_the_recipe_holds_for_a_hybrid_model(folders: Folders, gpu: str) -> None:
    shape = target_shape(QWEN_27B, "Qwen3.5-27B", folders)
    mean, _ = compare(Roofline(find_gpu(gpu)).verify(shape), _composed(f"qwen3.5-27b-{gpu}"))
    assert mean < 0.05


@pytest.mark.parametrize(("table", "gpu"), [("l40s", "l40s"), ("rtx_pro_6000_server", "rtx-pro-6000")])
def test_linear_layers_of_workstation_gpus_are_within_the_stated_error(
    folders: Folders, table: str, gpu: str
) -> None:
    measured = linear_term(gemm_table(folders, table, Ledger()), LLAMA.linears, Ledger())
    analytic = Roofline(find_gpu(gpu)).linear(LLAMA.linears)
    tokens = (1, 4, 16, 64, 128, 192, 256, 384, 512, 1024, 2048, 4096)
    errors = [pass_ns([analytic], {"tokens": n}) / pass_ns([measured], {"tokens": n}) - 1 for n in tokens]
    assert sum(map(abs, errors)) / len(errors) + COMPOSED_ERROR <= ERROR.relative
    assert min(errors) > -0.37, "what the stated basis says of wide steps"


@given(
    gpu=st.sampled_from(sorted(GPUS)),
    m=st.integers(1, 8192),
    n=st.integers(64, 40_000),
    k=st.integers(64, 40_000),
)
def test_no_product_beats_the_datasheet_and_none_shrinks_with_tokens(
    gpu: str, m: int, n: int, k: int
) -> None:
    roofline, device = Roofline(find_gpu(gpu)), find_gpu(gpu).device
    ns = roofline.product(m, Linear("x", n, k))
    assert ns * 1e-9 >= 2 * n * k / device.bandwidth_bytes_per_s
    assert ns * 1e-9 >= 2 * m * n * k / device.peak_flops_per_s
    assert roofline.product(m + 1, Linear("x", n, k)) >= ns


def test_one_token_reads_the_weights_at_the_stated_bandwidth() -> None:
    """8 TB/s x 0.8: a product of 4096 x 4096 in bf16 takes 33.6 MB / 6.4 TB/s, and a launch."""
    gpu = find_gpu("mi355x")
    moved = 2 * (4096 * 4096 + 2 * 4096)
    expected = moved / (8e12 * BANDWIDTH) * 1e9 + LAUNCH_NS
    assert Roofline(gpu).product(1, Linear("x", 4096, 4096)) == pytest.approx(expected)


@pytest.mark.parametrize("gpu", SHIPPED)
def test_a_shipped_analytic_profile_is_what_the_command_makes(gpu: str, tmp_path: Path) -> None:
    path = PROFILES / f"llama-3.1-8b-{gpu}-analytic.json"
    profile = load_profile(path)
    arguments = profile.command.split()[3:]
    assert main([*arguments[:-1], str(tmp_path)]) == 0
    made = (tmp_path / path.name).read_text()
    assert made.replace(str(tmp_path), "scenarios/profiles") == path.read_text()
    assert path.stat().st_size < 20_000


@pytest.mark.parametrize("gpu", SHIPPED)
def test_every_kernel_of_an_analytic_profile_is_marked_so(gpu: str) -> None:
    profile = load_profile(PROFILES / f"llama-3.1-8b-{gpu}-analytic.json")
    assert profile.kind == "analytic"
    assert profile.error == ERROR
    assert {term.mark for term in profile.target.verify} == {"analytic"}
    assert {term.mark for drafter in profile.drafters.values() for term in drafter.first} <= {
        "analytic",
        "assumed",
    }
    step = pass_ns(profile.target.verify, decode_shape(1, 512))
    eagle3 = profile.drafters["eagle3"]
    assert pass_ns(eagle3.next, decode_shape(1, 512)) < step / 8


def test_a_model_that_does_not_fit_is_refused(folders: Folders) -> None:
    shape = target_shape(QWEN_27B, "Qwen3.5-27B", folders)
    with pytest.raises(ShapeError, match=r"53\.8 GB of bf16 weights do not fit the 23\.2 GB"):
        analytic_profile(find_gpu("l4"), shape, {}, "x", "x")


def test_mixtures_windows_and_latent_attention_have_terms(folders: Folders) -> None:
    for file, extra in (("openai--gpt-oss-20b", "attention_sliding"), ("deepseek-ai--DeepSeek-V3", "moe")):
        shape = target_shape(f"model_configs/{file}.json", file, folders)
        terms = Roofline(find_gpu("mi355x")).verify(shape)
        assert extra in [term.name for term in terms]
        one, many = (pass_ns(terms, decode_shape(batch, 512)) for batch in (1, 64))
        assert many > 1.5 * one, "more tokens reach more experts"


def test_the_command_names_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = ["--out", str(tmp_path)]
    assert main(["--gpu", "tpu", "--config", "llama-3.1-8b", *out]) == 2
    assert "'tpu' is not a GPU with a datasheet here; one of a100, h100" in capsys.readouterr().err
    assert main(["--gpu", "l4", "--config", "nowhere.json", *out]) == 2
    assert "nor one of llama-3.1-8b" in capsys.readouterr().err
