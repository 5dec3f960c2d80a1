"""SGLang 0.5.9's own time under speculation, from SpecDecode-Bench's Fig. 2 at batch 1.

Kernels are those of the composed ``qwen3-8b-h100``. What a drafting step takes beside them follows
from the published ratio at batch 1: of the chain, the engine's loop; of the tree of 21 nodes, what
trees take more than that. Trees verify with FlashInfer, for their masks, and chains with
FlashAttention 3, so the excess is laid on attention: a factor, and the same factor at every batch.

    python -m tests.published.tree_engine --groundtruth ../shared/groundtruth --out scenarios/published
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from calibrate.compose.evaluate import decode_shape, pass_ns
from calibrate.profile import Assumption, Drafter, Profile, Source, Term, load_profile, save_profile
from sim.scenario.catalogue import locate
from tests.published.measure import CHAIN, TREE_21, TreeArm, tree_ratios

COMMAND: Final = (
    "python -m tests.published.tree_engine --groundtruth ../shared/groundtruth --out scenarios/published"
)
FIGURE: Final = "SpecDecode-Bench (arXiv 2601.11580), Fig. 2, GSM8K at batch 1"
NAME: Final = "qwen3-8b-h100-sglang059"
CONTEXT: Final = 177
"""KV tokens of a sequence half way through its answer (see the scenarios)."""


def profile(groundtruth: Path) -> Profile:
    """The composed profile with two drafters: ``eagle3`` for chains, ``eagle3-tree`` for trees."""
    base = load_profile(locate("profile", "qwen3-8b-h100", Path()))
    loop = excess_ns(base, CHAIN, tree_ratios(groundtruth, CHAIN)[1])
    mask = excess_ns(base, TREE_21, tree_ratios(groundtruth, TREE_21)[1]) - loop
    factor = 1 + mask / attention_ns(base)
    eagle = base.drafters["eagle3"]
    looped = Term(name="loop", mark="assumed", source=FIGURE, fixed_ns=round(loop))
    chain = eagle.model_copy(update={"first": (*eagle.first, looped)})
    masked = eagle.model_copy(update={"first": (*chain.first, slower_attention(base, factor))})
    return base.model_copy(
        update={
            "name": NAME,
            "command": COMMAND,
            "drafters": {"eagle3": chain, "eagle3-tree": masked},
            "assumptions": (*base.assumptions, *assumptions(loop, factor)),
            "sources": (*base.sources, Source(name=FIGURE, what="throughput with drafts over without")),
            "samples": (),
            "notes": "For a published case (docs/validation.md), not for planning.",
        }
    )


def excess_ns(base: Profile, arm: TreeArm, ratio: float) -> float:
    """What a drafting step at batch 1 takes beside its kernels, by the published ratio."""
    plain, wide = decode_shape(1, CONTEXT), decode_shape(1, CONTEXT, arm.nodes + 1)
    target = (*base.target.verify, *base.target.accept, *base.target.host)
    kept, row = decode_shape(1, CONTEXT, round(arm.tokens)), decode_shape(arm.width, CONTEXT)
    eagle: Drafter = base.drafters["eagle3"]
    drafting = pass_ns(eagle.first, kept) + (arm.depth - 1) * pass_ns(eagle.next, row)
    return arm.tokens * pass_ns(target, plain) / ratio - pass_ns(target, wide) - drafting


def attention_ns(base: Profile) -> float:
    """The target's decode attention of one sequence."""
    return pass_ns((_attention(base),), decode_shape(1, CONTEXT))


def slower_attention(base: Profile, factor: float) -> Term:
    """What the target's attention takes more under masks; charged with drafting, so to trees alone."""
    attention = _attention(base)
    more = {name: (factor - 1) * attention.per_ns[name] for name in ("sequences", "context_tokens")}  # type: ignore[index]
    return Term(
        name="masked_attention",
        mark="assumed",
        source=FIGURE,
        fixed_ns=round((factor - 1) * attention.fixed_ns),
        per_ns={name: round(ns, 2) for name, ns in more.items()},  # type: ignore[misc]
    )


def _attention(base: Profile) -> Term:
    return next(term for term in base.target.verify if term.name == "attention_decode")


def assumptions(loop: float, factor: float) -> tuple[Assumption, ...]:
    """The two estimates with their reasons."""
    return (
        Assumption(
            what="drafters.*.first.loop",
            value=f"{loop / 1e6:.2f} ms per step",
            why=f"what the chain's ratio leaves beside the composed kernels ({FIGURE})",
        ),
        Assumption(
            what="drafters.eagle3-tree.first.masked_attention",
            value=f"the target's decode attention {factor:.2f} times as slow",
            why=(
                "what the ratio of the tree of 21 nodes leaves beside kernels and loop: trees need masks, so "
                f"FlashInfer in place of FlashAttention 3 ({FIGURE}). Host work may be in it, too"
            ),
        ),
    )


def main(arguments: list[str] | None = None) -> None:
    """Write the profile."""
    parser = argparse.ArgumentParser(prog="tests.published.tree_engine", description=__doc__)
    parser.add_argument("--groundtruth", type=Path, required=True, help="folder of the published tables")
    parser.add_argument("--out", type=Path, required=True, help="folder to write the profile to")
    options = parser.parse_args(arguments)
    save_profile(profile(options.groundtruth), options.out / f"{NAME}.json")


if __name__ == "__main__":
    main()
