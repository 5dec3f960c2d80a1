"""A model split over devices: the share of one device, and what the whole replica holds.

Tensor parallel engines divide heads, the inner width of feed-forward blocks, experts and the
vocabulary; hidden states, norms, routers and the fusing products of draft heads are whole on every
device. So the share of a device is the shape of a smaller ``config.json``. Heads of keys and values
are copied where there are fewer of them than devices; a latent cache (DeepSeek) is copied to all.
"""

from __future__ import annotations

from dataclasses import dataclass

from calibrate.configs import Config, ShapeError
from calibrate.profile import ModelWork
from calibrate.shapes import Shape

_DIVIDED = ("num_attention_heads", "intermediate_size", "linear_num_key_heads", "linear_num_value_heads")
_PADDED = ("vocab_size", "draft_vocab_size")
_EXPERT = "moe_intermediate_size"
_COPIED = "num_key_value_heads"


@dataclass(frozen=True)
class Split:
    """How one replica is laid over devices.

    ``tp`` devices share every product. ``ep`` groups share the experts, whole ones each: 1 cuts
    every expert into ``tp`` parts, ``tp`` gives each device ``1/tp`` of them. ``dp`` is how many such
    replicas, each with requests of its own, send their tokens to a common pool of experts; the
    experts then lie over ``tp * dp`` devices, ``ep`` must be that product, and they step together.
    """

    tp: int = 1
    ep: int = 1
    dp: int = 1

    def __post_init__(self) -> None:
        """``ShapeError`` on a split that no engine makes."""
        if min(self.tp, self.ep, self.dp) < 1:
            raise ShapeError(f"tp {self.tp}, ep {self.ep}, dp {self.dp}: each must be at least 1")
        if self.ep not in (1, self.tp * self.dp):
            raise ShapeError(f"ep {self.ep}: must be 1 or tp x dp = {self.tp * self.dp}")
        if self.dp > 1 and self.ep == 1:
            raise ShapeError(
                f"dp {self.dp}: replicas share nothing unless they share experts (ep {self.tp * self.dp})"
            )

    @property
    def expert_tp(self) -> int:
        """Parts that every expert is cut into."""
        return self.tp if self.ep == 1 else 1


WHOLE = Split()
"""One device, which holds everything."""


def shard_config(config: Config, split: Split) -> Config:
    """The ``config.json`` of one device's share; ``ShapeError`` where a width cannot be divided."""
    if "text_config" in config:
        return {**config, "text_config": shard_config(config["text_config"], split)}
    if split.tp == 1:
        return config
    own = dict(config)
    heads = int(config["num_attention_heads"])
    own["head_dim"] = int(config.get("head_dim") or int(config["hidden_size"]) // heads)
    experts = config.get("num_local_experts")
    for key in (*_DIVIDED, _EXPERT):
        inside_expert = key == _EXPERT or (key == "intermediate_size" and experts)
        parts = split.expert_tp if inside_expert else split.tp
        if config.get(key):
            own[key] = _divided(key, int(config[key]), parts)
    if split.ep > 1 and config.get("n_shared_experts"):
        shared = int(config["n_shared_experts"]) * int(config[_EXPERT])
        own["shared_expert_intermediate_size"] = _divided(_EXPERT, shared, split.tp)
    for key in _PADDED:
        if config.get(key):
            own[key] = -(-int(config[key]) // split.tp)
    own[_COPIED] = _kv_heads(int(config.get(_COPIED) or heads), split.tp)
    return own


def _divided(key: str, value: int, parts: int) -> int:
    if value % parts:
        divisors = ", ".join(str(n) for n in range(1, 17) if value % n == 0)
        raise ShapeError(f"{key} {value}: cannot be split over {parts} devices; one of {divisors}")
    return value // parts


def _kv_heads(heads: int, tp: int) -> int:
    if heads % tp and tp % heads:
        raise ShapeError(f"{_COPIED} {heads}: neither divides {tp} devices nor is divided by them")
    return max(1, heads // tp)


def replica_work(
    whole: Shape, share: Shape, split: Split, dtype_bytes: float = 2, expert_bytes: float | None = None
) -> ModelWork:
    """The account of a replica over ``split.tp`` devices: what it holds and reads on all of them.

    Copied parts count once per device, so that memory over all devices less ``weight_bytes`` is
    what is left for the cache. FLOPs are the model's own.
    """
    work = whole.work(dtype_bytes, expert_bytes)
    if split == WHOLE:
        return work
    each = dtype_bytes if expert_bytes is None else expert_bytes
    rest = share.parameters - share.expert_parameters
    routed = whole.expert_parameters * each / (split.dp if split.ep > 1 else 1)
    own = share.work(dtype_bytes, expert_bytes)
    update = {
        "weight_bytes": split.tp * rest * dtype_bytes + routed,
        "read_bytes": split.tp * own.read_bytes,
        "kv_bytes_per_token": split.tp * own.kv_bytes_per_token,
        "window_kv_bytes_per_token": split.tp * own.window_kv_bytes_per_token,
        "state_bytes_per_sequence": split.tp * own.state_bytes_per_sequence,
    }
    return work.model_copy(update=update)
