"""A closed loop of equal requests on straight-line costs, for laws about whole runs of a policy."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from sim.acceptance.build import build_process
from sim.acceptance.config import Confidence, IidAcceptance
from sim.engine.config import EngineConfig
from sim.engine.simulate import Setup, simulate
from sim.policies.base import Policy
from tests.engine.modelled import linear_profile, requests

ALPHA = 0.7


def tokens_per_s(
    policy: Policy, sequences: int, auc: float = 0.85, alpha: float = ALPHA, output: int = 400
) -> float:
    """Output tokens per second of ``sequences`` requests that start together and end alike."""
    config = IidAcceptance(process="iid", alpha=alpha, confidence=Confidence(auc=auc))
    profile = linear_profile(20.0, 0.1, 1e-4, draft=(1.0, 0.01, 0.5))
    setup = Setup(
        requests=requests(np.zeros(sequences), 64, output),
        profile=profile,
        drafter=profile.drafters["d"] if policy.drafts else None,
        engine=EngineConfig(preset="ideal", kv_blocks=100_000, max_num_seqs=1024),
        processes=(build_process(config, 0, 7, Path),),
        max_depth=7,
    )
    steps = simulate(setup, policy).steps
    return float(steps["emitted"].sum() / steps["end_ns"][-1] * 1e9)
