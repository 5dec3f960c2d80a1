"""KV blocks from memory: bytes over the bytes of a block in target and drafter."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from calibrate.profile import load_profile
from sim.acceptance.build import build_process
from sim.acceptance.config import IidAcceptance
from sim.engine.config import EngineConfig
from sim.engine.kv import BlockPool, blocks_in, blocks_in_memory, state_blocks
from sim.engine.simulate import Setup, simulate
from sim.errors import InputError, SimulationError
from sim.policies.off import Off
from tests.engine.modelled import requests

LLAMA = load_profile(
    Path(__file__).resolve().parents[2] / "scenarios" / "profiles" / "llama-3.1-8b-h100.json"
)
QWEN = load_profile(Path(__file__).resolve().parents[2] / "scenarios" / "profiles" / "qwen3.5-27b-h200.json")


def test_a_block_of_llama_takes_two_mebibytes() -> None:
    """128 KiB per token (workloads' table) times 16 tokens: 10 GiB hold 5,120 blocks."""
    assert blocks_in(10 * 2**30, LLAMA, None, 16) == 5120


def test_the_drafter_takes_its_share_of_every_block() -> None:
    """With a drafter there are fewer blocks, by the ratio of the KV bytes."""
    drafter = LLAMA.drafters["eagle3"]
    assert drafter.work is not None
    share = 131072 / (131072 + drafter.work.kv_bytes_per_token)
    assert blocks_in(10 * 2**30, LLAMA, drafter, 16) == int(5120 * share)


def test_recurrent_state_is_held_as_blocks() -> None:
    """Qwen3.5-27B: 153.9 MB of state over 1 MiB blocks, rounded up."""
    assert state_blocks(QWEN, None, 16) == -(-153944064 // (16 * 65536))


def test_weights_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InputError, match="weights take"):
        blocks_in_memory(LLAMA, None, 16, 0.1)


def test_a_scenario_may_say_its_kv_memory() -> None:
    """``kv_cache_memory`` in place of what the weights leave; one block is vLLM's null block."""
    engine = EngineConfig.model_validate({"kv_cache_memory": "10GiB"})
    process = build_process(IidAcceptance(process="iid", alpha=0.0), 0, 1, Path)
    run = simulate(Setup(requests(np.zeros(1), 8, 2), LLAMA, None, engine, (process,), 0), Off())
    assert run.kv_blocks_total == 5119


def test_a_pool_that_does_not_balance_is_a_bug() -> None:
    pool = BlockPool(10)
    pool.take(4)
    pool.check_integrity(4)
    with pytest.raises(SimulationError):
        pool.check_integrity(3)


def test_windowed_layers_take_their_window_and_no_more() -> None:
    """Half of the bytes in layers that see 128 tokens: twice as many blocks, and a window per sequence."""
    work = QWEN.target.work.model_copy(
        update={"window_tokens": 128, "window_kv_bytes_per_token": 32768.0, "state_bytes_per_sequence": 0.0}
    )
    half = QWEN.model_copy(update={"target": QWEN.target.model_copy(update={"work": work})})
    assert blocks_in(1e9, half, None, 16) == int(1e9 / (16 * 32768))
    assert state_blocks(half, None, 16) == 128 // 16
