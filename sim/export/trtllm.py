"""TensorRT-LLM: the ``speculative_config`` of the YAML that ``trtllm-serve --config`` reads.

Checked in NVIDIA/TensorRT-LLM tensorrt_llm/llmapi/llm_args.py at 0004396 (``DecodingBaseConfig`` and the
classes of each ``decoding_type``) and tensorrt_llm/_torch/speculative/utils.py: a key of
``draft_len_schedule`` is the largest batch of its depth, nothing is drafted above the last key, and the
smallest key must hold ``max_draft_len``, the largest depth. The batch is that of scheduled requests.
"""

from __future__ import annotations

from typing import Any, Final

import yaml

from sim.errors import InputError
from sim.export.settings import Rows, Settings, Wish, deepest
from sim.policies.draft_len_schedule import DraftLenScheduleConfig
from sim.policies.per_batch_size import PerBatchSizeConfig
from sim.policies.static import StaticConfig
from sim.policies.tree import TreeConfig

NAME: Final = "TensorRT-LLM"
CHECKED: Final = "NVIDIA/TensorRT-LLM at 0004396"

_TYPES: Final = {
    "eagle": "Eagle3",
    "eagle3": "Eagle3",
    "mtp": "MTP",
    "draft_model": "Draft_Target",
    "ngram": "NGram",
    "suffix": "SA",
    "pard": "PARD",
    "dflash": "DFlash",
}
_WITHOUT_MODEL: Final = ("mtp", "ngram", "suffix")
_KEYS = "a key is the largest batch of its depth; releases before PR #10860 read it as the smallest"
_RAISED = (
    "the schedule's smallest batch must hold the largest depth, so small batches draft deeper than asked"
)


def off() -> Settings:
    """No speculative decoding: nothing to say."""
    return Settings("", notes=("leave speculative_config out",))


def express(wish: Wish) -> Settings:
    """The YAML of ``speculative_config``."""
    policy = wish.policy
    if wish.family not in _TYPES:
        raise InputError(f"TensorRT-LLM has no drafter of the kind {wish.family}")
    if isinstance(policy, StaticConfig):
        return _yaml(_config(wish, policy.k)) if policy.k else off()
    if isinstance(policy, TreeConfig):
        return _tree(wish, policy)
    if isinstance(policy, DraftLenScheduleConfig):
        return _schedule(wish, policy)
    return _table(wish)


def _table(wish: Wish) -> Settings:
    policy = wish.policy
    asked = closed(policy.table) if isinstance(policy, PerBatchSizeConfig) else wish.rows()
    rows = falling(asked)
    near = PerBatchSizeConfig(policy="per_batch_size", table=rows)
    own = isinstance(policy, PerBatchSizeConfig) and policy.batch_key == "scheduled"
    stands_for = None if own and rows == asked else near
    if not deepest(rows):
        return Settings("", notes=off().notes, stands_for=stands_for)
    if len(rows) == 1:
        return _yaml(_config(wish, rows[0][2]), stands_for=stands_for)
    config = _config(wish, deepest(rows)) | {"draft_len_schedule": schedule(rows, wish.max_batch)}
    notes = (_KEYS, _RAISED) if rows != asked else (_KEYS,)
    return _yaml(config, notes, stands_for)


def _schedule(wish: Wish, policy: DraftLenScheduleConfig) -> Settings:
    """TensorRT-LLM's own rule, gate included."""
    config = _config(wish, policy.depth)
    if policy.schedule is not None:
        config["draft_len_schedule"] = dict(policy.schedule)
    elif policy.max_concurrency is not None:
        config["max_concurrency"] = policy.max_concurrency
    if policy.acceptance_rate_threshold is not None:
        config["acceptance_rate_threshold"] = policy.acceptance_rate_threshold
        config["acceptance_rate_window_size"] = policy.acceptance_rate_window_size
    return _yaml(config, (_KEYS,))


def _tree(wish: Wish, policy: TreeConfig) -> Settings:
    if wish.family not in ("eagle", "eagle3", "mtp"):
        raise InputError(f"TensorRT-LLM grows trees with EAGLE-3 and MTP; {wish.name} is {wish.family}")
    tree = {
        "use_dynamic_tree": True,
        "dynamic_tree_max_topK": policy.width,
        "max_total_draft_tokens": policy.verified,
    }
    return _yaml(_config(wish, policy.k) | tree)


def closed(rows: Rows) -> Rows:
    """The same table without gaps: every row lasts until the next one begins."""
    lasts = [*(first - 1 for first, _, _ in rows[1:]), rows[-1][1]]
    return tuple((first, last, k) for (first, _, k), last in zip(rows, lasts, strict=True))


def falling(rows: Rows) -> Rows:
    """The table without gaps, its largest depth from batch 1 to the end of the first row that has it."""
    rows, most = closed(rows), deepest(rows)
    at = next(i for i, row in enumerate(rows) if row[2] == most)
    return ((1, rows[at][1], most), *rows[at + 1 :])


def schedule(rows: Rows, most: int) -> dict[int, int]:
    """Rows as {largest batch: depth}; the last one lasts to the largest batch, and none is 0 at the end."""
    ends = [last for _, last, _ in closed(rows)[:-1]] + [max(rows[-1][1], most)]
    found = {end: k for end, (_, _, k) in zip(ends, rows, strict=True)}
    if rows[-1][2] == 0:
        del found[ends[-1]]
    return found


def _config(wish: Wish, k: int) -> dict[str, Any]:
    config: dict[str, Any] = {"decoding_type": _TYPES[wish.family], "max_draft_len": k}
    if wish.family not in _WITHOUT_MODEL:
        config["speculative_model"] = wish.model
    return config


def _yaml(config: dict[str, Any], notes: tuple[str, ...] = (), stands_for: Any = None) -> Settings:
    text = yaml.safe_dump({"speculative_config": config}, sort_keys=False).rstrip("\n")
    return Settings(text, notes=notes, stands_for=stands_for)
