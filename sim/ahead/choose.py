"""Which runs the compiled engine takes: those it knows all about, once they repay loading or compiling it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from sim.acceptance.lookup import LookupProcess
from sim.engine.behaviour import Behaviour
from sim.engine.config import EngineConfig
from sim.engine.presets import PRESETS
from sim.engine.simulate import Setup
from sim.policies.base import Policy
from sim.policies.by_batch import ByBatch
from sim.workload.requests import Requests

HONOURED: Final = frozenset(
    {
        "preset",
        "max_num_seqs",
        "max_num_batched_tokens",
        "max_model_len",
        "block_size",
        "kv_blocks",
        "kv_cache_memory",
        "gpu_memory_utilization",
        "long_prefill_token_threshold",
        "drafter_max_model_len",
        "depth_zero_overhead",
        "depth_zero_overhead_per_sequence",
        "sampling",
        "step_overhead",
        "draft_at_depth_zero",
        "draft_pass_over",
        "draft_for_finished",
        "draft_uniformly",
        "draft_past_end",
        "lookahead",
        "draft_slots",
        "null_block",
        "dummy_drafts",
        "pad_new_decodes",
        "pad_queries",
        "drop_last_hit",
        "capture_sizes",
        "graphs",
        "varying_depth_graphs",
        "capture_multiples",
        "overlap_host",
        "drafter_limit_stops_all",
        "checkpoint_states",
    }
)
"""Limits and switches that the compiled engine knows, at any value; others must do nothing."""


def why_stepped(setup: Setup, policy: Policy) -> str | None:
    """Why the compiled engine cannot take a replica, ``None`` if it can."""
    engine = setup.engine
    for name, idle in _NEUTRAL.items():
        value = getattr(engine.behaviour if name in Behaviour.model_fields else engine, name)
        if value != idle:
            return f"{name} is {value}"
    bounded = engine.drafter_max_model_len is not None and not engine.behaviour.dummy_drafts
    reasons = {
        "some layers read a window of their KV": setup.profile.target.work.window_tokens > 0,
        "drafts are cut to what the drafter's own context holds": bounded,
        "the policy drafts trees": policy.tree is not None and policy.tree.width > 1,
        "the policy's idle steps cost acceptance": policy.acceptance_loss > 0,
        "the drafter looks up matches for some classes alone": _looks_up_for_some(setup),
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def _looks_up_for_some(setup: Setup) -> bool:
    """Whether drafts may lack for some classes; stepping minds as soon as one of these has come."""
    return len({isinstance(process, LookupProcess) for process in setup.processes}) > 1


def why_asked(requests: Requests, policies: Sequence[Policy], setups: Sequence[Setup]) -> str | None:
    """Why compiled replicas cannot run ahead of the next event, ``None`` if they can."""
    first = policies[0]
    if not isinstance(first, ByBatch) or first.wants_outcomes:
        return "the policy is asked in every step"
    alike = (type(policy) is type(first) and vars(policy) == vars(first) for policy in policies)
    if not all(alike) or any(setup is not setups[0] for setup in setups):
        return "the replicas differ"
    if requests.timeout_ns is not None:
        return "clients wait only so long"
    if len(policies) > 1 and (requests.max_concurrency is not None or requests.abort_ns is not None):
        return "several replicas answer to clients that wait or leave"
    return None


def _neutral() -> dict[str, object]:
    """Limits and switches that are not honoured, and the value at which each does nothing."""
    limits = {name: field.default for name, field in EngineConfig.model_fields.items()}
    values = limits | PRESETS["ideal"].model_dump()
    return {name: value for name, value in values.items() if name not in HONOURED}


_NEUTRAL: Final = _neutral()
LOADING: Final = 200_000
"""Output tokens whose stepping takes about as long as loading the machine code (1 s, docs/benchmarks.md)."""
COMPILING: Final = 4_000_000
"""The same for compiling it, once per installation (20 s)."""

_stepped = 0
_expected = 1


def expect(runs: int) -> None:
    """So many runs of about the same size are to come, in this process and those beside it."""
    global _expected  # noqa: PLW0603
    _expected = max(runs, 1)


def expected() -> int:
    """What was said last to ``expect``."""
    return _expected


def repays(setup: Setup) -> bool:
    """Whether the run is worth the machine code: always once it is there, else where enough is to be stepped.

    Rent or buy: a process compiles that has stepped through as much as compiling costs, or is about to.
    """
    global _stepped  # noqa: PLW0603  what this process has stepped through so far
    if "sim.ahead.kernel" in sys.modules:
        return True
    tokens = int(np.sum(setup.requests.output_tokens))
    _stepped += tokens
    return max(_stepped, tokens * _expected) >= (LOADING if _compiled() else COMPILING)


def _compiled() -> bool:
    """Whether this installation has compiled the engine before (Numba's cache folders)."""
    own = os.environ.get("NUMBA_CACHE_DIR")
    folders = (
        [Path(own)] if own else [Path(__file__).parent / "__pycache__", Path.home() / ".cache" / "numba"]
    )
    return any(next(folder.rglob("kernel.replay-*.nbi"), None) is not None for folder in folders)
