"""SGLang: ``--speculative-*`` flags, and the files that its adaptive and DSpark modes read.

Checked in sgl-project/sglang: python/sglang/srt/speculative/adaptive_spec_params.py at 015c872 (config of
``--speculative-adaptive``: batch-size floors as text, ``candidate_steps`` from 0; EAGLE and EAGLE3 chains
alone), throughput_aware_controller.py at 088c5ab (candidates above 0), dspark_components/
dspark_sps_table.py (rising ``sample_batch_tokens``, ``sample_steps_per_sec``, ``max_batch_tokens``), and
the list of server arguments. A floor with one candidate never moves, so it is a row of a table.
"""

from __future__ import annotations

import json
from typing import Any, Final

import numpy as np

from sim.errors import InputError
from sim.export.settings import Settings, Wish, deepest, static
from sim.policies.dspark import DSparkConfig
from sim.policies.per_batch_size import PerBatchSizeConfig
from sim.policies.sglang_ema import SglangEmaConfig
from sim.policies.sglang_throughput_aware import SglangThroughputAwareConfig
from sim.policies.static import StaticConfig
from sim.policies.tree import TreeConfig
from sim.policies.vllm_adaptive import VllmAdaptiveConfig
from sim.units import NS_PER_S

NAME: Final = "SGLang"
CHECKED: Final = "sgl-project/sglang at 015c872"
ADAPTIVE_FILE: Final = "speculative_adaptive.json"
SPS_FILE: Final = "dspark_sps.json"

_ALGORITHMS: Final = {
    "eagle": "EAGLE",
    "eagle3": "EAGLE3",
    "mtp": "EAGLE",
    "draft_model": "STANDALONE",
    "ngram": "NGRAM",
    "dflash": "DFLASH",
    "dspark": "DSPARK",
}
_ADAPTS: Final = ("eagle", "eagle3", "mtp")
_WITHOUT_MODEL: Final = ("mtp", "ngram")
_BATCH: Final = "sampling"
"""What SGLang counts as the batch: the sequences that draft (as in sim/policies/sglang_ema.py)."""
_PADDED = "SGLang pads a batch to its captured size before it looks the depth up"
_PROFILED = "SGLang times its own costs at startup and learns acceptance, as the policy here does"
_COSTS = "the cost table is this profile's; SGLang's own profiler (dspark_sps_profiler) measures yours"


def off() -> Settings:
    """No speculative decoding: nothing to say."""
    return Settings("", notes=("leave every --speculative-* flag out",))


def express(wish: Wish) -> Settings:
    """Flags, and the config file or cost table that they name."""
    policy = wish.policy
    if wish.family not in _ALGORITHMS:
        raise InputError(f"SGLang has no drafter of the kind {wish.family}")
    if isinstance(policy, StaticConfig):
        return Settings(_flags(wish, policy.k)) if policy.k else off()
    if isinstance(policy, TreeConfig):
        return _tree(wish, policy)
    if isinstance(policy, DSparkConfig | VllmAdaptiveConfig) and wish.family == "dspark":
        return _dspark(wish, policy)
    if wish.family not in _ADAPTS:
        return _one_depth(wish)
    return _adapting(wish)


def _adapting(wish: Wish) -> Settings:
    """SGLang's own adaptive strategies, or a table in their words."""
    policy = wish.policy
    if isinstance(policy, SglangEmaConfig):
        return _adaptive(wish, policy.start, _ema(policy), policy.depth)
    if isinstance(policy, SglangThroughputAwareConfig):
        return _adaptive(wish, policy.start, _throughput_aware(policy), policy.depth, _PROFILED)
    return _table(wish)


def _table(wish: Wish) -> Settings:
    policy = wish.policy
    rows = policy.table if isinstance(policy, PerBatchSizeConfig) else wish.rows()
    exact = isinstance(policy, PerBatchSizeConfig) and policy.batch_key == _BATCH
    near = PerBatchSizeConfig(policy="per_batch_size", table=rows, batch_key=_BATCH)
    stands_for = None if exact else near
    if not deepest(rows):
        return Settings("", notes=off().notes, stands_for=stands_for)
    config = {"strategy": "ema", **{str(first): {"candidate_steps": [k]} for first, _, k in rows}}
    found = _adaptive(wish, rows[0][2], config, deepest(rows), _PADDED)
    return Settings(found.text, found.files, found.notes, stands_for)


def _adaptive(wish: Wish, start: int, config: dict[str, Any], k: int, *notes: str) -> Settings:
    text = f"{_flags(wish, start or k)} --speculative-adaptive --speculative-adaptive-config {ADAPTIVE_FILE}"
    return Settings(text, {ADAPTIVE_FILE: json.dumps(config, indent=1) + "\n"}, notes)


def _ema(policy: SglangEmaConfig) -> dict[str, Any]:
    common = {
        "strategy": "ema",
        "ema_alpha": policy.ema_alpha,
        "update_interval": policy.update_interval,
        "warmup_batches": policy.warmup_batches,
    }
    return common | {
        str(floor): {
            "candidate_steps": list(slot.candidate_steps),
            "up_hysteresis": slot.up_hysteresis,
            "down_hysteresis": slot.down_hysteresis,
        }
        for floor, slot in policy.slots.items()
    }


def _throughput_aware(policy: SglangThroughputAwareConfig) -> dict[str, Any]:
    common = {
        "strategy": "throughput_aware",
        "window_size": policy.window_size,
        "update_interval": policy.update_interval,
        "profile_run_seq_len": policy.profile_context,
    }
    return common | {str(floor): {"candidate_steps": list(steps)} for floor, steps in policy.slots.items()}


def _tree(wish: Wish, policy: TreeConfig) -> Settings:
    if wish.family not in _ADAPTS:
        raise InputError(f"SGLang grows trees with EAGLE and MTP drafters; {wish.name} is {wish.family}")
    return Settings(_flags(wish, policy.k, policy.width, policy.verified + 1))


def _one_depth(wish: Wish) -> Settings:
    """The best static depth, where SGLang cannot change depth: it adapts EAGLE and MTP chains alone."""
    if wish.static is None:
        raise InputError(
            f"SGLang changes the depth of EAGLE and MTP drafters alone, and {wish.name} is {wish.family}; "
            "add static depths to the scenario to have the best one exported"
        )
    return Settings(_flags(wish, wish.static), stands_for=static(wish.static))


def _dspark(wish: Wish, policy: DSparkConfig | VllmAdaptiveConfig) -> Settings:
    """Confidence scheduling with this profile's cost table."""
    text = (
        f"SGLANG_RAGGED_VERIFY_MODE=compact \\\n{_flags(wish, policy.k_max)} "
        f"--speculative-dspark-sps-table-path {SPS_FILE}"
    )
    same = isinstance(policy, DSparkConfig) and policy.variant == "production"
    near = DSparkConfig(policy="dspark", k_max=policy.k_max, profile_context=policy.profile_context, least=1)
    table = sps_table(wish, policy.k_max, policy.profile_context)
    files = {SPS_FILE: json.dumps(table, indent=1) + "\n"}
    return Settings(text, files, (_COSTS,), None if same else near)


def sps_table(wish: Wish, k: int, context: float) -> dict[str, Any]:
    """Steps per second over the tokens of a target pass, one sequence per ``k + 1`` of them."""
    cost, most = wish.cost(), wish.max_batch * (k + 1)
    tokens = np.array([size for size in _powers(most) if size <= cost.max_tokens])
    sequences = np.maximum(tokens // (k + 1), 1)
    ns = np.maximum.accumulate(cost.target_ns(tokens, sequences, sequences * context))
    return {
        "sample_batch_tokens": tokens.tolist(),
        "sample_steps_per_sec": np.round(NS_PER_S / ns, 3).tolist(),
        "max_batch_tokens": most,
    }


def _powers(most: int) -> list[int]:
    return sorted({size for p in range(24) for size in (2**p, 3 * 2**p) if size < most} | {most})


def _flags(wish: Wish, steps: int, width: int = 1, tokens: int | None = None) -> str:
    """Algorithm, drafter and depth; the verified window counts the sequence's own token, too."""
    parts = [f"--speculative-algorithm {_ALGORITHMS[wish.family]}"]
    if wish.family not in _WITHOUT_MODEL:
        parts.append(f"--speculative-draft-model-path '{wish.model}'")
    if wish.family in (*_ADAPTS, "draft_model"):
        parts += [f"--speculative-num-steps {steps}", f"--speculative-eagle-topk {width}"]
    if wish.family == "ngram":
        parts.append("--speculative-ngram-max-bfs-breadth 1")
    parts.append(f"--speculative-num-draft-tokens {tokens or steps + 1}")
    return " ".join(parts)
