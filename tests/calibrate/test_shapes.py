"""Shapes against the sizes that the models' publishers and cards give."""

from __future__ import annotations

import json

import pytest

from calibrate.compose.tables import Folders
from calibrate.configs import (
    LLAMA31_8B,
    LLAMA31_8B_EAGLE3,
    QWEN35_08B,
    Config,
    ShapeError,
    dflash_head,
    eagle3_head,
    from_config,
    mtp_head,
)

GIB, MIB, KIB = 2**30, 2**20, 2**10

TARGETS = [
    # file, total B, read per pass B, active B, KV KiB per token, state MiB per sequence
    ("Qwen--Qwen3.5-27B", 26.90, 25.63, 25.63, 64, 147),
    ("Qwen--Qwen3-30B-A3B", 30.53, 1.23, 3.04, 96, 0),
    ("meta-llama--Meta-Llama-3.1-8B", 8.03, 7.50, 7.50, 128, 0),
    ("meta-llama--Meta-Llama-3.1-70B", 70.55, 69.50, 69.50, 320, 0),
    ("Qwen--Qwen3-8B", 8.19, 7.57, 7.57, 144, 0),
    ("Qwen--Qwen3-32B", 32.76, 31.98, 31.98, 256, 0),
    ("Qwen--Qwen3-0.6B", 0.596, 0.596, 0.596, 112, 0),
    ("Qwen--Qwen3-1.7B", 1.72, 1.72, 1.72, 112, 0),
    ("Qwen--Qwen3-235B-A22B", 235.1, None, 21.6, 188, 0),
]


def _config(folders: Folders, path: str) -> Config:
    config: Config = json.loads((folders.configs / f"{path}.json").read_text())
    return config


@pytest.mark.parametrize(("file", "total", "read", "active", "kv", "state"), TARGETS)
def test_a_targets_counts_are_the_published_ones(
    folders: Folders, file: str, total: float, read: float | None, active: float, kv: int, state: int
) -> None:
    work = from_config(_config(folders, f"model_configs/{file}"), file).work()
    assert work.parameters / 1e9 == pytest.approx(total, rel=1e-3)
    assert work.weight_bytes == 2 * work.parameters
    if read is not None:
        assert work.read_bytes / 2e9 == pytest.approx(read, rel=2e-3)
    assert work.flops_per_token / 2e9 == pytest.approx(active, rel=2e-3)
    assert work.kv_bytes_per_token == kv * KIB
    assert work.state_bytes_per_sequence / MIB == pytest.approx(state, abs=0.5)


def test_llama_31_8b_has_the_parameter_count_of_its_card(folders: Folders) -> None:
    config = _config(folders, "model_configs/meta-llama--Meta-Llama-3.1-8B")
    assert from_config(config, "llama").parameters == 8_030_261_248


def test_the_built_in_small_model_has_its_published_counts() -> None:
    work = from_config(QWEN35_08B, "qwen3.5-0.8b").work()
    assert work.parameters / 1e9 == pytest.approx(0.752, abs=5e-4)
    assert work.read_bytes == pytest.approx(2 * work.parameters), "tied: the head is the input table"
    assert work.kv_bytes_per_token == 12 * KIB
    assert work.state_bytes_per_sequence / MIB == pytest.approx(18.6, abs=0.05)


@pytest.mark.parametrize(
    ("file", "millions", "read_gb"),
    [
        ("llama3-8B-eagle3", 425, 0.75),
        ("llama3-70B-ealge3", 1400, 2.40),
        ("qwen3-8b-eagle3", 400, 0.70),
        ("qwen3-32b-eagle3", 783, 1.41),
        ("qwen3-30B-A3B-eagle3", 183, 0.34),
    ],
)
def test_an_eagle3_head_has_its_published_size(
    folders: Folders, file: str, millions: float, read_gb: float
) -> None:
    work = eagle3_head(_config(folders, f"draft_configs/{file}"), file).work()
    assert work.parameters / 1e6 == pytest.approx(millions, rel=3e-3)
    assert work.read_bytes / 1e9 == pytest.approx(read_gb, abs=6e-3)


def test_the_mtp_head_borrows_the_targets_head_but_reads_it(folders: Folders) -> None:
    work = mtp_head(_config(folders, "model_configs/Qwen--Qwen3.5-27B"), "mtp").work()
    assert work.parameters / 1e6 == pytest.approx(425, rel=2e-3)
    assert work.read_bytes / 1e9 == pytest.approx(3.39, abs=5e-3)


def test_experts_of_the_mixture_are_its_published_ones(folders: Folders) -> None:
    work = from_config(_config(folders, "model_configs/Qwen--Qwen3-30B-A3B"), "moe").work()
    experts = work.experts
    assert experts is not None
    assert (experts.count, experts.active, experts.layers) == (128, 8, 48)
    assert experts.bytes_each / 2e6 == pytest.approx(4.7, abs=0.02)
    everything = work.read_bytes + experts.count * experts.layers * experts.bytes_each
    assert everything / work.weight_bytes == pytest.approx(1.0, abs=0.02), "all but the input table"


def test_an_unknown_family_or_a_missing_key_is_refused_by_name() -> None:
    with pytest.raises(ShapeError, match="'mamba' is not one of llama"):
        from_config({"model_type": "mamba"}, "x")
    with pytest.raises(ShapeError, match="target_layer_ids: missing"):
        dflash_head(LLAMA31_8B, "x")
    incomplete = {key: value for key, value in QWEN35_08B.items() if key != "linear_num_value_heads"}
    with pytest.raises(ShapeError, match="linear_num_value_heads: missing"):
        from_config(incomplete, "x")


@pytest.mark.parametrize(
    ("file", "total", "active", "kv_kib", "expert_millions"),
    [
        ("openai--gpt-oss-120b", 116.83, 5.13, 36, 24.9),
        ("openai--gpt-oss-20b", 20.9, 3.61, 24, 24.9),
        ("deepseek-ai--DeepSeek-V3", 671.03, 36.6, 68.6, 44.0),
    ],
)
def test_a_large_mixture_has_its_published_counts(
    folders: Folders, file: str, total: float, active: float, kv_kib: float, expert_millions: float
) -> None:
    work = from_config(_config(folders, f"model_configs/{file}"), file).work()
    assert work.experts is not None
    assert work.parameters / 1e9 == pytest.approx(total, rel=1e-3)
    assert work.flops_per_token / 2e9 == pytest.approx(active, rel=3e-3)
    unbounded = work.kv_bytes_per_token - work.window_kv_bytes_per_token
    assert unbounded / KIB == pytest.approx(kv_kib, abs=0.05)
    assert work.experts.bytes_each / 2e6 == pytest.approx(expert_millions, abs=0.06)


def test_windowed_layers_keep_128_tokens(folders: Folders) -> None:
    """gpt-oss-120b: 18 layers of 8 heads of 64 numbers, keys and values, bf16."""
    shape = from_config(_config(folders, "model_configs/openai--gpt-oss-120b"), "gpt-oss-120b")
    work = shape.work()
    assert work.window_tokens == 128
    assert work.window_kv_bytes_per_token == 18 * 2 * 8 * 64 * 2
    assert work.kv_bytes_per_token == 2 * work.window_kv_bytes_per_token


def test_quantised_experts_shrink_the_weights_alone(folders: Folders) -> None:
    """gpt-oss-120b in mxfp4 is a checkpoint of about 65 GB (its model card: 60.8 GiB)."""
    shape = from_config(_config(folders, "model_configs/openai--gpt-oss-120b"), "gpt-oss-120b")
    work = shape.work(expert_bytes=17 / 32)
    assert work.weight_bytes / 2**30 == pytest.approx(60.8, rel=0.01)
    assert work.read_bytes == shape.work().read_bytes


def test_latent_attention_caches_one_entry_for_all_heads(folders: Folders) -> None:
    """DeepSeek-V3: 576 numbers a token and layer; 128 heads score 576 of them and sum 512."""
    shape = from_config(_config(folders, "model_configs/deepseek-ai--DeepSeek-V3"), "v3")
    assert shape.attention.kv_values_per_token == 61 * 576
    assert shape.attention.flops_per_query_context == 61 * 2 * 128 * (576 + 512)
    assert shape.read_parameters / 1e9 == pytest.approx(16.2, rel=2e-3)


@pytest.mark.parametrize(
    ("file", "layers_billion", "fuse_million", "read_gb"),
    [("qwen3-8b-dflash", 0.965, 84, 3.34), ("qwen3.6-27b-dflash", 1.60, 131, 6.00)],
)
def test_a_dflash_head_has_its_published_size(
    folders: Folders, file: str, layers_billion: float, fuse_million: float, read_gb: float
) -> None:
    work = dflash_head(_config(folders, f"draft_configs/{file}"), file).work()
    assert work.parameters / 1e9 == pytest.approx(layers_billion + fuse_million / 1e3, rel=3e-3)
    assert work.read_bytes / 1e9 == pytest.approx(read_gb, abs=6e-3)


def test_qwen2_has_biases_on_queries_keys_and_values() -> None:
    """Qwen2.5-7B: the published checkpoint has 7,615,616,512 parameters."""
    config = {
        "model_type": "qwen2",
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "vocab_size": 152064,
    }
    assert from_config(config, "qwen2.5-7b").parameters == 7_615_616_512


def test_the_built_in_configs_are_the_published_ones(folders: Folders) -> None:
    published = _config(folders, "model_configs/meta-llama--Meta-Llama-3.1-8B")
    assert from_config(LLAMA31_8B, "x") == from_config(published, "x")
    head = _config(folders, "draft_configs/llama3-8B-eagle3")
    assert eagle3_head(LLAMA31_8B_EAGLE3, "x") == eagle3_head(head, "x")
