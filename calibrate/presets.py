"""Targets and drafters that ``leadline calibrate`` knows by name, as the fields of their ``config.json``.

Only shapes matter: weights are random. The fields are those of the published files; the small pair
``cpu-small`` is the one that the CPU measurements of vLLM used (88M and 6M parameters).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from calibrate.configs import (
    LLAMA31_8B,
    LLAMA31_8B_EAGLE3,
    QWEN35_08B,
    Config,
    dflash_head,
    eagle3_head,
    from_config,
    mtp_head,
)
from calibrate.profile import DrafterKind
from calibrate.shapes import Shape


class PresetError(ValueError):
    """A name that is neither a preset nor a file, or a drafter that cannot be built."""


def _llama(hidden: int, layers: int, heads: int, kv: int, inter: int, vocab: int, **more: Any) -> Config:
    return {
        "model_type": "llama",
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        "intermediate_size": inter,
        "vocab_size": vocab,
        **more,
    }


QWEN3_8B = _llama(4096, 36, 32, 8, 12288, 151936, model_type="qwen3", head_dim=128)
QWEN3_30B_A3B = _llama(
    2048,
    48,
    32,
    4,
    6144,
    151936,
    model_type="qwen3_moe",
    head_dim=128,
    moe_intermediate_size=768,
    num_experts=128,
    num_experts_per_tok=8,
)
QWEN35_27B: Config = {
    **QWEN35_08B,
    "head_dim": 256,
    "hidden_size": 5120,
    "intermediate_size": 17408,
    "linear_num_value_heads": 48,
    "num_attention_heads": 24,
    "num_hidden_layers": 64,
    "num_key_value_heads": 4,
    "mtp_num_hidden_layers": 1,
    "tie_word_embeddings": False,
}
EAGLE3_QWEN3_8B = _llama(4096, 1, 32, 8, 12288, 151936, head_dim=128, draft_vocab_size=32000)
EAGLE3_QWEN3_30B = _llama(2048, 1, 32, 4, 12288, 151936, head_dim=128, draft_vocab_size=32000)
DFLASH_QWEN3_8B = _llama(
    4096,
    5,
    32,
    8,
    12288,
    151936,
    model_type="qwen3",
    head_dim=128,
    block_size=16,
    dflash_config={"target_layer_ids": [1, 9, 17, 25, 33]},
)
CPU_TARGET = _llama(768, 12, 12, 4, 2048, 8192, head_dim=64)
CPU_DRAFT = _llama(256, 3, 4, 2, 704, 8192, head_dim=64)
CPU_EAGLE = _llama(768, 1, 12, 4, 2048, 8192, head_dim=64, draft_vocab_size=4096, target_hidden_size=768)
TINY_TARGET = _llama(64, 2, 2, 1, 128, 512, head_dim=32)
TINY_DRAFT = _llama(32, 1, 2, 1, 64, 512, head_dim=16)
TINY_EAGLE = _llama(64, 1, 2, 1, 128, 512, head_dim=32, draft_vocab_size=256)

Build = Callable[[Config, str], Shape]


@dataclass(frozen=True)
class Draft:
    """A drafter: its kind, the fields of its ``config.json``, and what reads them."""

    kind: DrafterKind
    config: Config
    build: Build


@dataclass(frozen=True)
class Preset:
    """A target and its drafters. ``most_tokens`` and ``most_context`` bound the grid where it is small."""

    model: str
    config: Config
    drafters: Mapping[str, Draft] = field(default_factory=dict)
    most_tokens: int = 512
    most_context: int = 16384

    @property
    def shape(self) -> Shape:
        """The target's shape."""
        return from_config(self.config, self.model)


PRESETS: Mapping[str, Preset] = {
    "tiny": Preset(
        "tiny",
        TINY_TARGET,
        {
            "draft": Draft("draft_model", TINY_DRAFT, from_config),
            "eagle": Draft("eagle", TINY_EAGLE, eagle3_head),
        },
        most_tokens=16,
        most_context=64,
    ),
    "cpu-small": Preset(
        "cpu-small-88m",
        CPU_TARGET,
        {
            "draft": Draft("draft_model", CPU_DRAFT, from_config),
            "eagle": Draft("eagle", CPU_EAGLE, eagle3_head),
        },
        most_tokens=128,
        most_context=1024,
    ),
    "qwen3.5-27b": Preset(
        "Qwen3.5-27B",
        QWEN35_27B,
        {
            "qwen3.5-0.8b": Draft("draft_model", QWEN35_08B, from_config),
            "mtp": Draft("mtp", QWEN35_27B, mtp_head),
        },
    ),
    "qwen3-8b": Preset(
        "Qwen3-8B",
        QWEN3_8B,
        {
            "eagle3": Draft("eagle", EAGLE3_QWEN3_8B, eagle3_head),
            "dflash": Draft("parallel", DFLASH_QWEN3_8B, dflash_head),
        },
    ),
    "llama-3.1-8b": Preset(
        "Llama-3.1-8B", LLAMA31_8B, {"eagle3": Draft("eagle", LLAMA31_8B_EAGLE3, eagle3_head)}
    ),
    "qwen3-30b-a3b": Preset(
        "Qwen3-30B-A3B", QWEN3_30B_A3B, {"eagle3": Draft("eagle", EAGLE3_QWEN3_30B, eagle3_head)}
    ),
}


def find_preset(name: str) -> Preset:
    """A preset by name, or a target from a ``config.json``; ``PresetError`` when it is neither."""
    if name in PRESETS:
        return PRESETS[name]
    path = Path(name)
    if not path.is_file():
        raise PresetError(f"--model {name!r} is no file and not one of: {', '.join(PRESETS)}")
    return Preset(path.parent.name if path.stem == "config" else path.stem, read_config(path))


def drafters_of(preset: Preset, asked: list[str]) -> dict[str, Draft]:
    """The drafters asked for, by the preset's names or as ``NAME=KIND:config.json``; all when none is."""
    if not asked:
        return dict(preset.drafters)
    return dict(_drafter(preset, text) for text in asked if text != "none")


def _drafter(preset: Preset, text: str) -> tuple[str, Draft]:
    if text in preset.drafters:
        return text, preset.drafters[text]
    name, _, rest = text.partition("=")
    kind, _, path = rest.partition(":")
    builds: dict[str, tuple[DrafterKind, Build]] = {
        "draft_model": ("draft_model", from_config),
        "eagle": ("eagle", eagle3_head),
        "mtp": ("mtp", mtp_head),
        "parallel": ("parallel", dflash_head),
    }
    if kind not in builds or not path:
        known = ", ".join((*preset.drafters, f"NAME=KIND:config.json with KIND one of {', '.join(builds)}"))
        raise PresetError(f"--drafter {text!r} is not one of: {known}")
    return name, Draft(builds[kind][0], read_config(Path(path)), builds[kind][1])


def read_config(path: Path) -> Config:
    """A ``config.json``; ``PresetError`` when it is none."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise PresetError(f"{path}: is not a config.json ({error})") from None
    if not isinstance(data, dict):
        raise PresetError(f"{path}: is not a config.json (an object is needed)")
    return data
