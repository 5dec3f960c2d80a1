"""The vllm_v1 preset against recordings of vLLM's own scheduler under known step costs.

Every step (clock, tokens, sequences, drafts, waiting, preempted) and every request's first-token
and finish times must be the same. Where drafts are verified, the accepted counts of the recording
are fed in as run lengths.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sim.engine.config import EngineConfig
from sim.engine.simulate import Setup, simulate
from sim.policies.base import Batch, Depths, Policy, PolicyDefaults
from sim.policies.config import Bounds
from sim.policies.off import Off
from sim.policies.per_batch_size import PerBatchSizeConfig
from sim.policies.static import Static
from tests.engine.modelled import RecordedAcceptance, linear_profile, requests

RECORDED = Path(__file__).resolve().parents[2].parent / "shared" / "vllm_cpu" / "recorded"
FILES = sorted(RECORDED.glob("*.json"))


class Recorded(PolicyDefaults):
    """Proposes as many drafts as the recorded look-up found: they depend on the tokens themselves."""

    def __init__(self, recording: dict[str, Any]) -> None:
        self.prompts = [r[1] for r in recording["config"]["requests"]]
        self.drafts: dict[tuple[int, int], int] = {}
        produced = [0] * len(self.prompts)
        for step in recording["steps"]:
            for name, drafts in step[4].items():
                self.drafts[int(name), produced[int(name)]] = drafts
            for name, new in step[5].items():
                produced[int(name)] += new

    def draft_depths(self, batch: Batch) -> Depths:
        """The drafts with which each sequence was scheduled next."""
        pairs = zip(batch.request.tolist(), batch.context_tokens.tolist(), strict=True)
        return np.array([self.drafts.get((r, t - self.prompts[r]), 0) for r, t in pairs], dtype=np.int64)


def policy_of(recording: dict[str, Any]) -> Policy:
    """The recording's policy."""
    config = recording["config"]
    if config["spec"] == "table":
        table = tuple(tuple(row) for row in config["table"])
        return PerBatchSizeConfig(policy="per_batch_size", table=table).build(Bounds(config["k"]))
    if config["spec"] == "ngram":
        return Recorded(recording)
    return Off() if config["spec"] == "off" else Static(config["k"])


def accepted_runs(recording: dict[str, Any]) -> list[list[int]]:
    """Run length at each output position where a recorded round started."""
    runs = [[0] * output for _, _, output in (r[:3] for r in recording["config"]["requests"])]
    produced = [0] * len(runs)
    for step in recording["steps"]:
        for name, new in step[5].items():
            request = int(name)
            if new:
                runs[request][produced[request]] = new - 1
                produced[request] += new
    return runs


def setup_of(recording: dict[str, Any]) -> Setup:
    """The simulator's scenario for a recording."""
    config = recording["config"]
    a, b, d0, d1, d2 = config["clock"]
    paid = config["spec"] in ("static", "table")
    kind = "ngram" if config["spec"] == "ngram" else "draft_model"
    profile = linear_profile(a, b, draft=(d0, d1, d2) if paid else (0.0, 0.0, 0.0), kind=kind)
    arrivals, prompts, outputs = zip(*(r[:3] for r in config["requests"]), strict=True)
    return Setup(
        requests=requests(arrivals, prompts, outputs),
        profile=profile,
        drafter=profile.drafters.get("d"),
        engine=EngineConfig(
            preset="vllm_v1",
            max_num_seqs=config["max_num_seqs"],
            max_num_batched_tokens=config["max_num_batched_tokens"],
            max_model_len=512,
            block_size=config["block_size"],
            kv_blocks=config["num_gpu_blocks"],
            capture_sizes=(),
        ),
        processes=(RecordedAcceptance(accepted_runs(recording)),),
        max_depth=config.get("k", 0),
    )


@pytest.mark.skipif(not FILES, reason="recordings of vLLM are not beside the project")
@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
def test_every_step_and_every_request_is_vllms(file: Path) -> None:
    """Fed the same luck, the simulator's steps and times are vLLM's."""
    recording = json.loads(file.read_text())
    config = recording["config"]
    if config["prefix_caching"]:
        pytest.skip("prefix caching is not modelled")
    run = simulate(setup_of(recording), policy_of(recording))

    first = run.requests["first_token_ns"] / 1e9
    finish = run.requests["finish_ns"] / 1e9
    recorded = np.array([r[:2] for r in recording["requests"]])
    np.testing.assert_allclose(np.stack([first, finish], axis=1), recorded, rtol=0, atol=2e-6)

    steps = recording["steps"]
    assert len(run.steps["end_ns"]) == len(steps)
    columns = {
        "tokens": [s[1] for s in steps],
        "sequences": [len(s[3]) for s in steps],
        "drafted": [sum(s[4].values()) for s in steps],
        "preempted": [len(s[6]) for s in steps],
        "waiting": [s[7] for s in steps],
    }
    for name, expected in columns.items():
        np.testing.assert_array_equal(run.steps[name], expected, err_msg=name)
    np.testing.assert_allclose(run.steps["end_ns"] / 1e9, [s[0] for s in steps], rtol=0, atol=2e-6)
