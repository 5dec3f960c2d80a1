"""Presets by name: the switches, and the default limits, as one engine sets them.

The values stand in ``sim/engine/engines/``, one file per engine, each with the place where it was read;
``leadline explain`` prints them.
"""

from __future__ import annotations

from typing import Final, Literal

from sim.engine.behaviour import Behaviour
from sim.engine.engines.ideal import IDEAL
from sim.engine.engines.llamacpp import LLAMACPP
from sim.engine.engines.sglang import SGLANG
from sim.engine.engines.trtllm import TRTLLM
from sim.engine.engines.vllm_v0 import VLLM_V0
from sim.engine.engines.vllm_v1 import CAPTURE_SIZES, VLLM_V1, VLLM_V1_ADAPTIVE
from sim.engine.sourced import EnginePreset

PresetName = Literal["ideal", "vllm_v1", "vllm_v1_adaptive", "vllm_v0", "sglang", "trtllm", "llamacpp"]

VLLM_CAPTURE_SIZES: Final = CAPTURE_SIZES

ENGINES: Final[dict[PresetName, EnginePreset]] = {
    "ideal": IDEAL,
    "vllm_v1": VLLM_V1,
    "vllm_v1_adaptive": VLLM_V1_ADAPTIVE,
    "vllm_v0": VLLM_V0,
    "sglang": SGLANG,
    "trtllm": TRTLLM,
    "llamacpp": LLAMACPP,
}
"""Every preset with the source of each of its values."""

PRESETS: Final[dict[PresetName, Behaviour]] = {name: engine.behaviour for name, engine in ENGINES.items()}
