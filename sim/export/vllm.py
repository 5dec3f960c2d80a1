"""vLLM: ``--speculative-config``.

Checked in vLLM 0.32: vllm/config/speculative.py (``SpeculativeConfig``: fields and methods),
vllm/v1/spec_decode/dynamic/utils.py (rows of ``num_speculative_tokens_per_batch_size``: inclusive, from
1, ascending; gaps and what follows the last row keep the depth before), vllm/config/vllm.py
(``_validate_adaptive_verification``; dynamic depth is switched off with data parallelism).
"""

from __future__ import annotations

import json
from typing import Any, Final

from sim.errors import InputError
from sim.export.settings import Rows, Settings, Wish, deepest, static
from sim.policies.config import PolicyConfig
from sim.policies.dspark import DSparkConfig
from sim.policies.per_batch_size import PerBatchSizeConfig
from sim.policies.static import StaticConfig
from sim.policies.tree import TreeConfig
from sim.policies.vllm_adaptive import VllmAdaptiveConfig

NAME: Final = "vLLM"
CHECKED: Final = "vLLM 0.32"

_WITHOUT_MODEL: Final = ("mtp", "ngram", "suffix")
_PROFILED_CONTEXT: Final = 8192
_ZERO = "depth 0 still runs the drafter: a table is no cheaper there than verifying one draft (issue #49548)"
_PARALLEL = "with data parallelism vLLM drops the table and drafts num_speculative_tokens everywhere"
_GRAPHS = "adaptive verification needs full CUDA graphs, and no pipeline parallelism or LoRA"
_SUFFIX = "suffix decoding needs the package arctic-inference"


def off() -> Settings:
    """No speculative decoding: nothing to say."""
    return Settings("", notes=("leave --speculative-config out",))


def express(wish: Wish) -> Settings:
    """The JSON of ``--speculative-config``."""
    policy = wish.policy
    if isinstance(policy, StaticConfig):
        return _flags(_config(wish, policy.k)) if policy.k else off()
    if isinstance(policy, VllmAdaptiveConfig):
        return _adaptive(wish, policy)
    if isinstance(policy, DSparkConfig) and wish.family not in _WITHOUT_MODEL[1:]:
        near = VllmAdaptiveConfig(
            policy="vllm_adaptive", k_max=policy.k_max, profile_context=policy.profile_context
        )
        return _adaptive(wish, near, stands_in=True)
    if isinstance(policy, TreeConfig):
        raise InputError("vLLM verifies chains alone; a tree has no setting there")
    return _table(wish)


def _table(wish: Wish) -> Settings:
    """Depth by batch size: a table as it stands, or what the policy answered."""
    policy = wish.policy
    own = isinstance(policy, PerBatchSizeConfig)
    rows = policy.table if isinstance(policy, PerBatchSizeConfig) else wish.rows()
    exact = isinstance(policy, PerBatchSizeConfig) and policy.batch_key == "scheduled"
    near = PerBatchSizeConfig(policy="per_batch_size", table=rows)
    stands_for: PolicyConfig | None = None if exact else near
    if not deepest(rows):
        return Settings("", notes=off().notes, stands_for=stands_for)
    if len(rows) == 1 and not own:
        config, stands_for = _config(wish, rows[0][2]), static(rows[0][2])
        return _flags(config, stands_for=stands_for)
    config = _config(wish, deepest(rows))
    config["num_speculative_tokens_per_batch_size"] = [list(row) for row in rows]
    notes = (_PARALLEL, _ZERO) if _has_zero(rows) else (_PARALLEL,)
    return _flags(config, notes, stands_for)


def _adaptive(wish: Wish, policy: VllmAdaptiveConfig, stands_in: bool = False) -> Settings:
    if wish.family in ("ngram", "suffix"):
        raise InputError(f"vLLM's adaptive verification reads draft logits, and {wish.family} has none")
    config = _config(wish, policy.k_max)
    config["enable_adaptive_verification"] = True
    prefix = ""
    if policy.profile_context != _PROFILED_CONTEXT:
        prefix = f"VLLM_ADAPTIVE_VERIFICATION_PROFILE_CONTEXT_LEN={policy.profile_context} \\\n"
    found = _flags(config, (_GRAPHS,), policy if stands_in else None)
    return Settings(prefix + found.text, notes=found.notes, stands_for=found.stands_for)


def _config(wish: Wish, k: int) -> dict[str, Any]:
    """Method, model and depth."""
    method = {"pard": "draft_model"}.get(wish.family, wish.family)
    config: dict[str, Any] = {"method": method}
    if wish.family not in _WITHOUT_MODEL:
        config["model"] = wish.model
    config["num_speculative_tokens"] = k
    if wish.family == "pard":
        config["parallel_drafting"] = True
    return config


def _flags(config: dict[str, Any], notes: tuple[str, ...] = (), stands_for: Any = None) -> Settings:
    notes = (*notes, _SUFFIX) if config["method"] == "suffix" else notes
    return Settings(f"--speculative-config '{json.dumps(config)}'", notes=notes, stands_for=stands_for)


def _has_zero(rows: Rows) -> bool:
    return any(k == 0 for _, _, k in rows)
