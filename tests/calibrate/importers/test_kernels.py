"""Kernel tables of Vidur and aiconfigurator, against what the composed profiles make of the same tables."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from calibrate.analytic import compare
from calibrate.compose.evaluate import pass_ns
from calibrate.compose.tables import Folders
from calibrate.importers import About, import_profile
from calibrate.profile import ProfileError, load_profile
from tests.calibrate.conftest import ROOT, SHARED

Abouts = Callable[..., About]
Write = Callable[[str, str], Path]
VIDUR = SHARED / "groundtruth" / "vidur_mlp_profile_by_num_tokens.csv"
LLAMA = ("gpu=a100", "model=meta-llama/Meta-Llama-3-8B")
OPS = (
    "input_layernorm",
    "attn_pre_proj",
    "attn_rope",
    "attn_post_proj",
    "post_attention_layernorm",
    "mlp_up_proj",
    "mlp_act",
    "mlp_down_proj",
    "add",
)


def test_vidurs_own_columns_are_read(about: Abouts, write: Write) -> None:
    """Four projections of 0.1 ms and six small kernels (the add twice) of 0.1 ms, 32 layers."""
    header = ",".join(f"time_stats.{op}.median" for op in OPS)
    rows = "".join(f"{n},1,{','.join(['0.1'] * len(OPS))}\n" for n in (1, 8))
    path = write("mlp.csv", f"num_tokens,num_tensor_parallel_workers,{header}\n{rows}")
    verify = import_profile("vidur", [path], about()).target.verify
    measured = [term for term in verify if term.name in ("linear", "elementwise")]
    assert pass_ns(measured, {"tokens": 4}) / 1e6 == pytest.approx(32 * (4 + 6) * 0.1)
    assert {term.mark for term in verify} == {"composed", "analytic"}


def test_a_missing_kernel_and_a_missing_config_are_named(about: Abouts, write: Write) -> None:
    path = write("mlp.csv", "num_tokens,mlp_up_proj\n1,0.1\n")
    with pytest.raises(ProfileError, match="has no column 'attn_pre_proj'"):
        import_profile("vidur", [path], about())
    with pytest.raises(ProfileError, match="--config: is needed"):
        import_profile("vidur", [path], about(config="", parameters=8e9))


@pytest.fixture
def vidur() -> Path:
    if not VIDUR.exists():
        pytest.skip("Vidur's table is not at ../shared/groundtruth")
    return VIDUR


def test_several_models_in_one_table_have_to_be_chosen_from(about: Abouts, vidur: Path) -> None:
    with pytest.raises(ProfileError, match="leaves several profiles; give one of: gpu=a100 model="):
        import_profile("vidur", [vidur], about())
    with pytest.raises(ProfileError, match="leaves no matching profiles"):
        import_profile("vidur", [vidur], about(select=["gpu=tpu"]))


def test_vidurs_table_gives_its_layer_times_32(about: Abouts, vidur: Path) -> None:
    """Published: 9.7, 11.2, 13.2, 19.5, 34.7 ms for 32 layers of Llama-3-8B on A100."""
    profile = import_profile("vidur", [vidur], about(device="a100", select=LLAMA))
    kernels = [term for term in profile.target.verify if term.mark == "composed"]
    published = {1: 9.7, 64: 11.2, 128: 13.2, 256: 19.5, 512: 34.7}
    assert {n: pass_ns(kernels, {"tokens": n}) / 1e6 for n in published} == pytest.approx(published, rel=0.02)


@pytest.mark.parametrize("flat", [True, False])
def test_an_import_of_h100_tables_is_near_the_composed_profile(
    about: Abouts, folders: Folders, tmp_path: Path, flat: bool
) -> None:
    """Only the small kernels differ: from the datasheet here, Vidur's there. Either folder layout."""
    folder = folders.tables if flat else _as_in_the_package(folders.tables, tmp_path)
    profile = import_profile("aiconfigurator", [folder], about(select=["gpu=h100_sxm"]))
    composed = load_profile(ROOT / "scenarios" / "profiles" / "llama-3.1-8b-h100.json")
    mean, largest = compare(profile.target.verify, composed.target.verify)
    assert mean < 0.03
    assert largest < 0.05
    assert profile.error is not None
    assert mean + 0.09 <= profile.error.relative


def _as_in_the_package(tables: Path, root: Path) -> Path:
    places = {"gemm": "gemm", "generation_attention": "attention", "context_attention": "attention"}
    for family, group in places.items():
        target = root / "h100_sxm" / group / "vllm" / "0.24.0" / f"{family}_perf.parquet"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(next(tables.glob(f"h100_sxm_{family}_vllm_*.parquet")))
    return root


def test_what_the_tables_lack_is_said_and_widens_the_error(about: Abouts, folders: Folders) -> None:
    """L40S has a GEMM table and no attention table."""
    profile = import_profile("aiconfigurator", [folders.tables], about(device="l40s", select=["gpu=l40s"]))
    assert "attention" in profile.assumptions[0].what
    assert profile.error is not None
    assert profile.error.relative > 0.2


def test_an_unknown_gpu_is_answered_with_the_known_ones(
    about: Abouts, folders: Folders, tmp_path: Path
) -> None:
    with pytest.raises(ProfileError, match="tables are there for: a100_sxm, b200_sxm, h100_sxm"):
        import_profile("aiconfigurator", [folders.tables], about())
    with pytest.raises(ProfileError, match="tables are there for: none"):
        import_profile("aiconfigurator", [tmp_path], about())
    with pytest.raises(ProfileError, match="pip install aiconfigurator-core"):
        import_profile("aiconfigurator", [], about())
