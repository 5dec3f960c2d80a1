"""One device's share of a model, and what a replica of several devices holds."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibrate.compose.model_files import target_shape
from calibrate.compose.tables import Folders
from calibrate.configs import LLAMA31_8B, QWEN35_08B, Config, ShapeError, from_config
from calibrate.deepseek_mtp import deepseek_mtp_head
from calibrate.shapes import Shape
from calibrate.sharding import WHOLE, Split, replica_work, shard_config
from tests.calibrate.conftest import SHARED

MIXTURE: Config = {
    "model_type": "qwen3_moe",
    "hidden_size": 2048,
    "num_hidden_layers": 4,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "moe_intermediate_size": 768,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "vocab_size": 151936,
}
MODELS = {"dense": LLAMA31_8B, "hybrid": QWEN35_08B, "mixture": MIXTURE}
models = st.sampled_from(list(MODELS.values()))
degrees = st.sampled_from((1, 2, 4, 8))


def _share(config: Config, split: Split) -> Shape:
    return from_config(shard_config(config, split), "share")


@given(models, degrees)
def test_the_products_of_all_devices_are_the_models_own_and_the_copies(config: Config, tp: int) -> None:
    """Every product is cut once, in its outputs or in its inputs; routers and copied key heads are more."""
    whole, share = _share(config, WHOLE), _share(config, Split(tp))
    for own, cut in zip(whole.linears, share.linears, strict=True):
        assert cut.count == own.count
        copies = max(1, tp // whole.attention.kv_heads) if own.name == "qkv" else 1
        if own.name == "router":
            assert cut == own
        elif copies == 1:
            assert tp * cut.n * cut.k == own.n * own.k
        else:
            assert own.n * own.k < tp * cut.n * cut.k < copies * own.n * own.k


@given(models, degrees)
def test_a_replica_holds_its_cache_once_unless_heads_are_copied(config: Config, tp: int) -> None:
    whole, share = _share(config, WHOLE), _share(config, Split(tp))
    work, one = replica_work(whole, share, Split(tp)), whole.work()
    copies = max(1, tp // whole.attention.kv_heads)
    assert work.kv_bytes_per_token == copies * one.kv_bytes_per_token
    assert work.state_bytes_per_sequence == one.state_bytes_per_sequence
    assert work.weight_bytes >= one.weight_bytes
    assert work.weight_bytes < 1.1 * copies * one.weight_bytes
    assert work.flops_per_token == one.flops_per_token


def test_one_device_is_the_model_itself() -> None:
    for config in MODELS.values():
        whole = from_config(config, "m")
        assert replica_work(whole, _share(config, WHOLE), WHOLE) == whole.work()


@given(st.sampled_from((2, 4, 8)))
def test_shared_experts_stay_whole_and_their_weights_count_once(tp: int) -> None:
    split = Split(tp, ep=tp)
    whole, share = _share(MIXTURE, WHOLE), _share(MIXTURE, split)
    assert share.moe == whole.moe
    assert replica_work(whole, share, split).weight_bytes == pytest.approx(
        whole.work().weight_bytes, rel=0.05
    )


def test_replicas_that_share_experts_hold_their_part_of_them() -> None:
    split = Split(ep=2, dp=2)
    whole, share = _share(MIXTURE, WHOLE), _share(MIXTURE, split)
    work = replica_work(whole, share, split)
    assert work.weight_bytes == whole.work().weight_bytes - whole.expert_parameters * 2 / 2


@pytest.mark.parametrize(
    ("split", "message"),
    [
        ((0, 1, 1), "at least 1"),
        ((4, 2, 1), "must be 1 or tp x dp = 4"),
        ((1, 1, 2), "share experts"),
    ],
)
def test_a_split_that_no_engine_makes_is_refused(split: tuple[int, int, int], message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        Split(*split)


def test_a_width_that_cannot_be_divided_names_those_that_can() -> None:
    with pytest.raises(
        ShapeError, match="num_attention_heads 32: cannot be split over 3 devices; one of 1, 2, 4"
    ):
        shard_config(LLAMA31_8B, Split(3))
    with pytest.raises(ShapeError, match="num_key_value_heads 4: neither divides 6"):
        shard_config({**MIXTURE, "num_attention_heads": 36, "moe_intermediate_size": 768}, Split(6))


def test_latent_caches_are_copied_to_every_device(folders: Folders) -> None:
    """DeepSeek-V3 over eight: 128 heads are 16 each, the 576 numbers of a token stay on all."""
    whole, share = (
        target_shape("model_configs/deepseek-ai--DeepSeek-V3.json", "v3", folders, split)
        for split in (WHOLE, Split(8, ep=8))
    )
    assert share.attention.heads == 16
    work = replica_work(whole, share, Split(8, ep=8), 1, 1)
    assert work.kv_bytes_per_token == 8 * 61 * 576
    assert work.weight_bytes == pytest.approx(671e9, rel=0.02)
    gate = next(at for at in share.linears if at.name == "gate_up" and at.count == 58)
    assert gate.n == 2 * 2048 // 8


def test_deepseeks_prediction_head_is_one_layer_of_the_published_size(folders: Folders) -> None:
    """Its report: 14 billion for the module, embedding and head (0.93 each) that it shares included."""
    path = SHARED / "data" / "model_configs" / "deepseek-ai--DeepSeek-V3.json"
    head = deepseek_mtp_head(json.loads(path.read_text()), "mtp")
    assert head.layers == 1
    assert (head.parameters + 2 * head.head.parameters) / 1e9 == pytest.approx(13.5, abs=0.5)
