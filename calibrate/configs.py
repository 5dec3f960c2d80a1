"""Model shapes from Hugging Face ``config.json`` files.

Families: Llama, Qwen2 and Qwen3 (dense and mixture of experts), Qwen3.5 (three gated-DeltaNet layers
to one of full attention), gpt-oss (sliding windows, experts with biases), DeepSeek-V3 (multi-head
latent attention), EAGLE-3 draft heads, Qwen3.5's multi-token-prediction head, and DFlash heads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from calibrate.shapes import Attention, Elementwise, Gdn, Linear, Moe, Shape, Sliding

Config = Mapping[str, Any]


class ShapeError(ValueError):
    """A ``config.json`` that this module cannot turn into a shape: what is missing or unknown."""


def from_config(config: Config, name: str) -> Shape:
    """The shape of a target or a separate draft model; ``ShapeError`` on an unknown family."""
    text = config.get("text_config", config)
    family = text.get("model_type", "")
    if family in ("qwen3_5_text", "qwen3_5"):
        tied = config.get("tie_word_embeddings", text.get("tie_word_embeddings", False))
        return _hybrid({**text, "tie_word_embeddings": tied}, name)
    if family not in _FAMILIES:
        known = ", ".join((*_FAMILIES, "qwen3_5_text"))
        raise ShapeError(f"{name}: model_type {family!r} is not one of {known}")
    return _FAMILIES[family](text, name)


def _need(config: Config, key: str) -> int:
    if key not in config:
        raise ShapeError(f"{key}: missing from config.json")
    return int(config[key])


def _attention(config: Config, layers: int) -> Attention:
    heads = _need(config, "num_attention_heads")
    dim = int(config.get("head_dim") or _need(config, "hidden_size") // heads)
    return Attention(heads, int(config.get("num_key_value_heads", heads)), dim, layers)


def _attention_linears(at: Attention, hidden: int, inputs: int, gated: bool = False) -> tuple[Linear, ...]:
    queries = at.heads * at.head_dim
    qkv = queries * (2 if gated else 1) + 2 * at.kv_heads * at.head_dim
    return (
        Linear("qkv", qkv, inputs, at.layers),
        Linear("attention_out", hidden, queries, at.layers),
    )


def _mlp_linears(hidden: int, inter: int, layers: int) -> tuple[Linear, ...]:
    return (Linear("gate_up", 2 * inter, hidden, layers), Linear("down", hidden, inter, layers))


def _layer_ops(hidden: int, layers: int) -> tuple[Elementwise, ...]:
    return (Elementwise("norm", hidden, 2 * layers), Elementwise("add", hidden, 2 * layers, fused=True))


def _attention_ops(at: Attention, qk_norm: bool) -> tuple[Elementwise, ...]:
    width = (at.heads + at.kv_heads) * at.head_dim
    rope = (Elementwise("rope", width, at.layers),)
    return (*rope, Elementwise("norm", width, at.layers, fused=True)) if qk_norm else rope


def _head(config: Config) -> tuple[Linear, int]:
    """The output head and the parameters of a separate input table (none when tied)."""
    head = Linear("lm_head", _need(config, "vocab_size"), _need(config, "hidden_size"))
    return head, 0 if config.get("tie_word_embeddings") else head.parameters


def _dense(config: Config, name: str) -> Shape:
    hidden, inter = _need(config, "hidden_size"), _need(config, "intermediate_size")
    layers = _need(config, "num_hidden_layers")
    attention = _attention(config, layers)
    head, embedding = _head(config)
    qk_norm, qkv_bias = config["model_type"] == "qwen3", config["model_type"] == "qwen2"
    small = 2 * attention.head_dim if qk_norm else 0
    small += (attention.heads + 2 * attention.kv_heads) * attention.head_dim if qkv_bias else 0
    return Shape(
        name=name,
        layers=layers,
        linears=(*_attention_linears(attention, hidden, hidden), *_mlp_linears(hidden, inter, layers)),
        head=head,
        elementwise=(
            *_layer_ops(hidden, layers),
            *_attention_ops(attention, qk_norm),
            Elementwise("act", inter, layers),
        ),
        attention=attention,
        embedding=embedding,
        small_parameters=(2 * layers + 1) * hidden + layers * small,
    )


def _mixture(config: Config, name: str) -> Shape:
    """Every layer is a mixture (``decoder_sparse_step`` 1); the router is an ordinary linear."""
    if config.get("decoder_sparse_step", 1) != 1 or config.get("mlp_only_layers"):
        raise ShapeError(f"{name}: dense layers between the expert layers are not supported")
    hidden, layers = _need(config, "hidden_size"), _need(config, "num_hidden_layers")
    experts = _need(config, "num_experts")
    attention = _attention(config, layers)
    head, embedding = _head(config)
    router = Linear("router", experts, hidden, layers)
    return Shape(
        name=name,
        layers=layers,
        linears=(*_attention_linears(attention, hidden, hidden), router),
        head=head,
        elementwise=(
            *_layer_ops(hidden, layers),
            *_attention_ops(attention, qk_norm=True),
            Elementwise("norm", experts, layers),
        ),
        attention=attention,
        moe=Moe(
            hidden,
            _need(config, "moe_intermediate_size"),
            experts,
            _need(config, "num_experts_per_tok"),
            layers,
        ),
        embedding=embedding,
        small_parameters=(2 * layers + 1) * hidden + 2 * attention.head_dim * layers,
    )


def _gdn(config: Config, layers: int) -> Gdn:
    return Gdn(
        hidden=_need(config, "hidden_size"),
        key_heads=_need(config, "linear_num_key_heads"),
        key_dim=_need(config, "linear_key_head_dim"),
        value_heads=_need(config, "linear_num_value_heads"),
        value_dim=_need(config, "linear_value_head_dim"),
        conv=_need(config, "linear_conv_kernel_dim"),
        layers=layers,
    )


def _gdn_linears(gdn: Gdn) -> tuple[Linear, ...]:
    values = gdn.value_heads * gdn.value_dim
    return (
        Linear("gdn_qkvz", gdn.conv_channels + values, gdn.hidden, gdn.layers),
        Linear("gdn_ba", 2 * gdn.value_heads, gdn.hidden, gdn.layers),
        Linear("gdn_out", gdn.hidden, values, gdn.layers),
    )


def _hybrid(config: Config, name: str) -> Shape:
    hidden, inter = _need(config, "hidden_size"), _need(config, "intermediate_size")
    layers = _need(config, "num_hidden_layers")
    full = layers // _need(config, "full_attention_interval")
    attention, gdn = _attention(config, full), _gdn(config, layers - full)
    head, embedding = _head(config)
    small_gdn = gdn.conv_channels * gdn.conv + 2 * gdn.value_heads + gdn.value_dim
    return Shape(
        name=name,
        layers=layers,
        linears=(
            *_gdn_linears(gdn),
            *_attention_linears(attention, hidden, hidden, gated=True),
            *_mlp_linears(hidden, inter, layers),
        ),
        head=head,
        elementwise=(
            *_layer_ops(hidden, layers),
            *_attention_ops(attention, qk_norm=True),
            Elementwise("act", attention.heads * attention.head_dim, full, fused=True),
            Elementwise("norm", gdn.value_heads * gdn.value_dim, gdn.layers),
            Elementwise("act", inter, layers),
        ),
        attention=attention,
        gdn=gdn,
        embedding=embedding,
        small_parameters=(2 * layers + 1) * hidden + 2 * attention.head_dim * full + small_gdn * gdn.layers,
    )


def eagle3_head(config: Config, name: str) -> Shape:
    """An EAGLE-3 head: one decoder layer on (embedding, feature), a small-vocabulary head.

    Three of the target's hidden states are fused by one product per fresh feature (``once``).
    The input table is the target's.
    """
    hidden, inter = _need(config, "hidden_size"), _need(config, "intermediate_size")
    layers = _need(config, "num_hidden_layers")
    features = int(config.get("target_hidden_size") or hidden)
    attention = _attention(config, layers)
    return Shape(
        name=name,
        layers=layers,
        linears=(*_attention_linears(attention, hidden, 2 * hidden), *_mlp_linears(hidden, inter, layers)),
        head=Linear("lm_head", _need(config, "draft_vocab_size"), hidden),
        elementwise=(
            *_layer_ops(hidden, layers),
            *_attention_ops(attention, qk_norm=False),
            Elementwise("norm", hidden, layers),
            Elementwise("act", inter, layers),
        ),
        attention=attention,
        once=(Linear("fuse", hidden, 3 * features),),
        small_parameters=4 * hidden,
    )


def mtp_head(config: Config, name: str) -> Shape:
    """Qwen3.5's prediction head: one full-attention layer; embedding and head are the target's."""
    text = config.get("text_config", config)
    hidden, layers = _need(text, "hidden_size"), _need(text, "mtp_num_hidden_layers")
    attention = _attention(text, layers)
    return Shape(
        name=name,
        layers=layers,
        linears=(
            Linear("fuse", hidden, 2 * hidden),
            *_attention_linears(attention, hidden, hidden, gated=True),
            *_mlp_linears(hidden, _need(text, "intermediate_size"), layers),
        ),
        head=Linear("lm_head", _need(text, "vocab_size"), hidden),
        elementwise=(
            *_layer_ops(hidden, layers),
            *_attention_ops(attention, qk_norm=True),
            Elementwise("norm", 2 * hidden, layers),
            Elementwise("act", attention.heads * attention.head_dim, layers, fused=True),
            Elementwise("act", _need(text, "intermediate_size"), layers),
        ),
        attention=attention,
        borrowed_head=True,
        small_parameters=5 * hidden + 2 * attention.head_dim,
    )


def dflash_head(config: Config, name: str) -> Shape:
    """A DFlash (or DSpark) head: a few decoder layers that draft a whole block in one pass.

    The target's hidden states of several layers are fused by one product; embedding and head are
    the target's. DSpark's small Markov and confidence heads are left out.
    """
    hidden, inter = _need(config, "hidden_size"), _need(config, "intermediate_size")
    layers = _need(config, "num_hidden_layers")
    taps = config.get("dflash_config", {}).get("target_layer_ids")
    if not taps:
        raise ShapeError("dflash_config.target_layer_ids: missing from config.json")
    attention = _attention(config, layers)
    return Shape(
        name=name,
        layers=layers,
        linears=(
            Linear("fuse", hidden, len(taps) * hidden),
            *_attention_linears(attention, hidden, hidden),
            *_mlp_linears(hidden, inter, layers),
        ),
        head=Linear("lm_head", _need(config, "vocab_size"), hidden),
        elementwise=(
            *_layer_ops(hidden, layers),
            *_attention_ops(attention, qk_norm=True),
            Elementwise("act", inter, layers),
        ),
        attention=attention,
        borrowed_head=True,
        small_parameters=(2 * layers + 2) * hidden + 2 * attention.head_dim * layers,
    )


def _gpt_oss(config: Config, name: str) -> Shape:
    """Every other layer sees a sliding window; projections, router and experts have biases."""
    hidden, layers = _need(config, "hidden_size"), _need(config, "num_hidden_layers")
    experts, every = _need(config, "num_local_experts"), _attention(config, layers)
    full = sum(kind == "full_attention" for kind in config.get("layer_types", ()))
    head, embedding = _head(config)
    linears = (*_attention_linears(every, hidden, hidden), Linear("router", experts, hidden, layers))
    biases = sum(linear.n * layers for linear in linears)
    sinks = every.heads * layers
    return Shape(
        name=name,
        layers=layers,
        linears=linears,
        head=head,
        elementwise=(
            *_layer_ops(hidden, layers),
            *_attention_ops(every, qk_norm=False),
            Elementwise("norm", experts, layers),
        ),
        attention=replace(every, layers=full),
        sliding=Sliding(replace(every, layers=layers - full), _need(config, "sliding_window")),
        moe=Moe(
            hidden,
            _need(config, "intermediate_size"),
            experts,
            _need(config, "num_experts_per_tok"),
            layers,
            bias=True,
        ),
        embedding=embedding,
        small_parameters=(2 * layers + 1) * hidden + biases + sinks,
    )


def _mla_linears(config: Config, hidden: int, layers: int) -> tuple[Linear, ...]:
    heads, latent = _need(config, "num_attention_heads"), _need(config, "kv_lora_rank")
    query, rope = _need(config, "q_lora_rank"), _need(config, "qk_rope_head_dim")
    nope, value = _need(config, "qk_nope_head_dim"), _need(config, "v_head_dim")
    return (
        Linear("qkv_a", query + latent + rope, hidden, layers),
        Linear("q_b", heads * (nope + rope), query, layers),
        Linear("kv_b", heads * (nope + value), latent, layers),
        Linear("attention_out", hidden, heads * value, layers),
    )


def _deepseek(config: Config, name: str) -> Shape:
    """DeepSeek-V3: latent attention, a few dense layers, then experts with a shared one.

    The multi-token-prediction layer is not part of it.
    """
    hidden, layers = _need(config, "hidden_size"), _need(config, "num_hidden_layers")
    dense, experts = _need(config, "first_k_dense_replace"), _need(config, "n_routed_experts")
    inter, expert = _need(config, "intermediate_size"), _need(config, "moe_intermediate_size")
    latent, rope = _need(config, "kv_lora_rank"), _need(config, "qk_rope_head_dim")
    attention = Attention(_need(config, "num_attention_heads"), 1, latent + rope, layers, latent)
    head, embedding = _head(config)
    stated = config.get("shared_expert_intermediate_size")  # apart where only these are divided
    sparse, shared = layers - dense, int(stated or _need(config, "n_shared_experts") * expert)
    norms = 2 * hidden + _need(config, "q_lora_rank") + latent
    return Shape(
        name=name,
        layers=layers,
        linears=(
            *_mla_linears(config, hidden, layers),
            *_mlp_linears(hidden, inter, dense),
            *_mlp_linears(hidden, shared, sparse),
            Linear("router", experts, hidden, sparse),
        ),
        head=head,
        elementwise=(
            *_layer_ops(hidden, layers),
            Elementwise("rope", (attention.heads + 1) * rope, layers),
            Elementwise("act", inter, dense),
            Elementwise("act", shared, sparse),
            Elementwise("norm", experts, sparse),
        ),
        attention=attention,
        moe=Moe(hidden, expert, experts, _need(config, "num_experts_per_tok"), sparse),
        embedding=embedding,
        small_parameters=norms * layers + hidden + experts * sparse,
    )


_FAMILIES: dict[str, Callable[[Config, str], Shape]] = {
    "llama": _dense,
    "qwen2": _dense,
    "qwen3": _dense,
    "qwen3_moe": _mixture,
    "gpt_oss": _gpt_oss,
    "deepseek_v3": _deepseek,
}


QWEN35_08B: Config = {
    "model_type": "qwen3_5_text",
    "full_attention_interval": 4,
    "head_dim": 256,
    "hidden_size": 1024,
    "intermediate_size": 3584,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 16,
    "linear_value_head_dim": 128,
    "num_attention_heads": 8,
    "num_hidden_layers": 24,
    "num_key_value_heads": 2,
    "tie_word_embeddings": True,
    "vocab_size": 248320,
}
"""Qwen3.5-0.8B (text part), from the launch scripts of THUDM/slime and radixark/miles."""

LLAMA31_8B: Config = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "tie_word_embeddings": False,
    "vocab_size": 128256,
}
"""Llama-3.1-8B, the numbers of its published config.json."""

LLAMA31_8B_EAGLE3: Config = {
    "model_type": "llama",
    "draft_vocab_size": 32000,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_hidden_layers": 1,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
}
"""The EAGLE-3 head of Llama-3.1-8B, as SpecForge configures it."""
