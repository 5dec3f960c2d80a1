"""A closed loop of equal requests on straight-line costs, for laws about whole runs of a policy."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from calibrate.profile import Profile
from sim.acceptance.build import build_process
from sim.acceptance.config import Confidence, IidAcceptance
from sim.engine.config import EngineConfig
from sim.engine.simulate import Setup, simulate
from sim.policies.base import Policy
from tests.engine.modelled import linear_profile, requests

ALPHA = 0.7


PROFILE = linear_profile(20.0, 0.1, 1e-4, draft=(1.0, 0.01, 0.5))


def tokens_per_s(
    policy: Policy,
    sequences: int,
    auc: float = 0.85,
    alpha: float = ALPHA,
    output: int = 400,
    prompt: int = 64,
    profile: Profile = PROFILE,
) -> float:
    """Output tokens per second of ``sequences`` requests that start together, from the first token on."""
    config = IidAcceptance(process="iid", alpha=alpha, confidence=Confidence(auc=auc))
    setup = Setup(
        requests=requests(np.zeros(sequences), prompt, output),
        profile=profile,
        drafter=profile.drafters["d"] if policy.drafts else None,
        engine=EngineConfig(
            preset="ideal", kv_blocks=1_000_000, max_num_seqs=1024, max_num_batched_tokens=65536
        ),
        processes=(build_process(config, 0, 7, Path),),
        max_depth=7,
    )
    steps = simulate(setup, policy).steps
    decoding = (steps["prefill_tokens"] == 0) & (steps["sequences"] == sequences)
    took = (steps["end_ns"] - steps["start_ns"])[decoding]
    return float(steps["emitted"][decoding].sum() / took.sum() * 1e9)
