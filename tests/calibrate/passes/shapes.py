"""Tiny models of every family."""

from __future__ import annotations

from calibrate.configs import QWEN35_08B, Config, dflash_head, eagle3_head, from_config, mtp_head

SMALL: Config = {
    "model_type": "qwen3",
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 98,
}
LLAMA = from_config({**SMALL, "model_type": "llama"}, "llama")
DENSE = from_config(SMALL, "dense")
DRAFT = from_config({**SMALL, "num_hidden_layers": 2, "tie_word_embeddings": True}, "draft")
MIXTURE = from_config(
    {
        **SMALL,
        "model_type": "qwen3_moe",
        "num_experts": 6,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 24,
    },
    "mixture",
)
HYBRID_CONFIG: Config = {
    **QWEN35_08B,
    **{key: SMALL[key] for key in SMALL if key != "model_type"},
    "linear_key_head_dim": 8,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_value_head_dim": 12,
    "mtp_num_hidden_layers": 1,
    "tie_word_embeddings": False,
}
HYBRID = from_config(HYBRID_CONFIG, "hybrid")
MTP = mtp_head(HYBRID_CONFIG, "mtp")
EAGLE = eagle3_head({**SMALL, "num_hidden_layers": 1, "draft_vocab_size": 31}, "eagle")
BLOCK = dflash_head(
    {**SMALL, "num_hidden_layers": 2, "dflash_config": {"target_layer_ids": [1, 2, 3]}}, "block"
)
