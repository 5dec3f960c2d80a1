"""Presets of engines: every value is set and sourced, and the engines' known habits show in the steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

import sim
from sim.engine.behaviour import Behaviour
from sim.engine.config import EngineConfig
from sim.engine.engines import sglang, trtllm, vllm_v0, vllm_v1
from sim.engine.presets import ENGINES, PRESETS
from sim.sweep import make_run

NAMES = list(ENGINES)
SMALL: dict[str, Any] = {
    "profile": "llama-3.1-8b-h100",
    "drafter": "eagle3",
    "acceptance": {"process": "iid", "alpha": 0.7},
    "workload": {
        "arrival": {"process": "poisson", "request_rate": "60/s"},
        "lengths": {"input": 300, "output": 40},
        "num_requests": 60,
    },
    "policies": ["off", {"policy": "static", "k": 3}],
    "run": {"seeds": 1, "warmup": "none"},
}


def steps_of(engine: dict[str, Any], policy: int = 1) -> tuple[dict[str, Any], dict[str, Any]]:
    """Requests and steps of one small run under an engine."""
    scenario = sim.load({**SMALL, "engine": engine})
    records, _ = make_run(scenario, scenario.policies[policy], 0)
    return dict(records.requests), dict(records.steps)


@pytest.mark.parametrize("name", NAMES)
def test_every_preset_sets_every_switch_and_says_where_each_value_was_read(name: str) -> None:
    engine = ENGINES[name]  # type: ignore[index]
    assert set(engine.switches) == set(Behaviour.model_fields)
    assert set(engine.limits) <= set(EngineConfig.model_fields) - set(Behaviour.model_fields)
    for values in (engine.switches, engine.limits):
        assert all(len(each.source) > 5 for each in values.values())


@pytest.mark.parametrize("name", NAMES)
def test_the_values_with_their_sources_are_those_that_run(name: str) -> None:
    behaviour = EngineConfig(preset=name).behaviour  # type: ignore[arg-type]
    assert behaviour == PRESETS[name]  # type: ignore[index]
    stated = {key: each.value for key, each in ENGINES[name].switches.items()}  # type: ignore[index]
    assert behaviour == Behaviour(**stated)


def test_ideal_and_vllm_v1_have_the_defaults_of_the_schema() -> None:
    """Naming them changes no limit: scenarios from before other engines' limits stay as they were."""
    for name in ("ideal", "vllm_v1"):
        for key, each in ENGINES[name].limits.items():
            assert each.value == EngineConfig.model_fields[key].default, key
        assert EngineConfig(preset=name).model_dump(exclude={"preset"}) == EngineConfig().model_dump(
            exclude={"preset"}
        )


def test_a_preset_brings_its_limits_unless_the_scenario_states_them() -> None:
    assert EngineConfig(preset="llamacpp").max_num_seqs == 4
    assert EngineConfig(preset="llamacpp", max_num_seqs=16).max_num_seqs == 16
    assert EngineConfig(preset="trtllm").block_size == 32
    assert EngineConfig(preset="vllm_v0", max_model_len=9000).max_num_batched_tokens == 9000
    assert EngineConfig(preset="vllm_v0", max_model_len=500).max_num_batched_tokens == 2048
    assert EngineConfig(preset="vllm_v0", max_num_batched_tokens=777).max_num_batched_tokens == 777


def test_sglang_takes_fewer_sequences_with_a_drafter_unless_their_number_is_stated() -> None:
    """Its server resets max_running_requests to 48 for speculation, where the user sets none."""
    default, stated = EngineConfig(preset="sglang"), EngineConfig(preset="sglang", max_num_seqs=100)
    assert [default.beside(each).max_num_seqs for each in (None, "drafter")] == [2048, 48]
    assert [stated.beside(each).max_num_seqs for each in (None, "drafter")] == [100, 100]
    flood = {
        **SMALL,
        "workload": {**SMALL["workload"], "arrival": {"process": "closed", "max_concurrency": 60}},
    }
    scenario = sim.load({**flood, "engine": {"preset": "sglang"}})
    widest = [
        int(np.max(make_run(scenario, policy, 0)[0].steps["sequences"])) for policy in scenario.policies
    ]
    assert widest == [60, 48]


@pytest.mark.parametrize("wrong", ["vllm", ["ideal"], {"ideal": 1}, 3])
def test_an_unknown_preset_is_refused(wrong: Any) -> None:
    with pytest.raises(ValidationError, match="preset"):
        EngineConfig(preset=wrong)


def test_the_adaptive_preset_changes_what_a_varying_depth_changes() -> None:
    """vLLM 0.32: PIECEWISE graphs, and no padding of admissions; nothing else."""
    v1, adaptive = PRESETS["vllm_v1"], PRESETS["vllm_v1_adaptive"]
    changed = {key for key in Behaviour.model_fields if getattr(v1, key) != getattr(adaptive, key)}
    assert changed == {"graphs", "varying_depth_graphs", "pad_new_decodes"}


def test_captured_sizes_are_the_engines_lists() -> None:
    """vLLM 0.8.5 by its docstring: 1, 2, 4, 8, 16 ... 256; 0.32 and TensorRT-LLM by their rules."""
    assert list(vllm_v0.CAPTURE_SIZES) == [1, 2, 4, *(8 * i for i in range(1, 33))]
    assert vllm_v1.CAPTURE_SIZES[-1] == 512
    assert len(vllm_v1.CAPTURE_SIZES) == 3 + 31 + 17
    assert [size // 4 for size in trtllm.CAPTURE_SIZES][:6] == [1, 2, 4, 8, 16, 24]
    assert trtllm.CAPTURE_SIZES[-1] == 4 * 128
    decode = [size for size in sglang.CAPTURE_SIZES if size <= 1024]
    assert all(size % 4 == 0 for size in decode)
    assert decode[-1] == 4 * 256
    assert list(sglang.CAPTURE_SIZES) == sorted(sglang.CAPTURE_SIZES)


@pytest.mark.parametrize("policy", [0, 1])
@pytest.mark.parametrize("name", NAMES)
def test_every_preset_answers_every_request(name: str, policy: int) -> None:
    requests, steps = steps_of({"preset": name}, policy)
    assert len(requests["request"]) == 60
    assert int(steps["emitted"].sum()) == 60 * 40
    engine = EngineConfig(preset=name).beside(policy or None)  # type: ignore[arg-type]
    assert int(np.max(steps["sequences"])) <= engine.max_num_seqs


@pytest.mark.parametrize("name", NAMES)
def test_prompts_have_steps_of_their_own_where_the_engine_puts_them_first(name: str) -> None:
    _, steps = steps_of({"preset": name})
    mixed = (steps["prefill_tokens"] > 0) & (steps["decodes"] > 0)
    assert bool(mixed.any()) is (PRESETS[name].prefill == "mixed")  # type: ignore[index]


@pytest.mark.parametrize("name", NAMES)
def test_prompts_are_cut_where_the_engine_chunks_them(name: str) -> None:
    """With room for two and a half prompts a step computes whole ones, or pieces."""
    _, steps = steps_of({"preset": name, "max_num_batched_tokens": 750, "max_num_seqs": 48})
    prompts = steps["prefill_tokens"][steps["prefill_tokens"] > 0]
    assert bool(np.any(prompts % 300)) is PRESETS[name].chunked_prefill  # type: ignore[index]


@pytest.mark.parametrize("name", ["trtllm", "llamacpp"])
def test_who_reserves_whole_answers_preempts_nobody(name: str) -> None:
    tight = {"preset": name, "block_size": 16, "kv_blocks": 60, "max_num_seqs": 48, "prefix_caching": False}
    requests, _ = steps_of(tight)
    others, _ = steps_of({**tight, "reserved_output": 0.0})
    assert int(requests["preemptions"].sum()) == 0
    assert int(others["preemptions"].sum()) > 0


@pytest.mark.parametrize("size", [-4, 0, 1 << 21])
def test_a_captured_size_is_a_number_of_tokens(size: int) -> None:
    """None below one, nor beyond any step."""
    with pytest.raises(ValidationError, match="capture_sizes"):
        EngineConfig(capture_sizes=(4, size))
