"""llama.cpp: flags of ``llama-server``.

Checked in ggml-org/llama.cpp tools/server/README.md at 00dc805: ``--draft-max`` and ``--draft-min`` are
removed there in favour of ``--spec-draft-n-max`` and ``--spec-draft-n-min``; ``--draft-p-min`` is still an
alias of ``--spec-draft-p-min``; without ``--spec-type`` nothing is drafted. A slot drafts for itself, so
no setting depends on the batch.
"""

from __future__ import annotations

from typing import Final

from sim.errors import InputError
from sim.export.settings import Settings, Wish, static
from sim.policies.p_min import PMinConfig
from sim.policies.static import StaticConfig

NAME: Final = "llama.cpp"
CHECKED: Final = "ggml-org/llama.cpp at 00dc805"

_TYPES: Final = {
    "draft_model": "draft-simple",
    "eagle3": "draft-eagle3",
    "mtp": "draft-mtp",
    "dflash": "draft-dflash",
    "dspark": "draft-dspark",
    "ngram": "ngram-simple",
}


def off() -> Settings:
    """No speculative decoding: nothing to say."""
    return Settings("--spec-type none")


def express(wish: Wish) -> Settings:
    """Draft length and the probability below which drafting stops."""
    policy = wish.policy
    if wish.family not in _TYPES:
        raise InputError(f"llama.cpp has no drafter of the kind {wish.family}")
    if isinstance(policy, StaticConfig):
        return _flags(wish, policy.k, 0, 0.0) if policy.k else off()
    if isinstance(policy, PMinConfig) and wish.family != "ngram":
        return _flags(wish, policy.k_max, policy.n_min, policy.p_min)
    if wish.static is None:
        raise InputError(
            f"llama.cpp knows a draft length and a least probability, and {policy.title} is neither; "
            "add static or p_min policies to the scenario to have the best one exported"
        )
    found = _flags(wish, wish.static, 0, 0.0) if wish.static else off()
    return Settings(found.text, notes=found.notes, stands_for=static(wish.static))


def _flags(wish: Wish, most: int, least: int, p_min: float) -> Settings:
    kind = _TYPES[wish.family]
    if wish.family == "ngram":
        return Settings(f"--spec-type {kind} --spec-ngram-simple-size-m {most}")
    drafter = "" if wish.family == "mtp" else f" --spec-draft-model '{wish.model}'"
    new = f"--spec-draft-n-max {most} --spec-draft-n-min {least} --spec-draft-p-min {p_min:g}"
    old = f"--draft-max {most} --draft-min {least} --draft-p-min {p_min:g}"
    return Settings(
        f"--spec-type {kind}{drafter} {new}", notes=(f"builds that still have --draft-max say {old}",)
    )
