"""A target with its drafters: trained once, kept in a file."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import torch

from calibrate.recording.block import BlockDrafter, train_block
from calibrate.recording.corpus import Corpus
from calibrate.recording.model import ByteModel, Shape
from calibrate.recording.train import DRAFT, TARGET, Plan, train

BLOCK_DEPTH: Final = 4


@dataclass(frozen=True)
class Recipe:
    """What a pair is made by; the same recipe on the same text and torch makes the same pair."""

    seed: int = 0
    target: Shape = TARGET
    draft: Shape = DRAFT
    target_steps: int = 800
    draft_steps: int = 2000
    block_steps: int = 400
    context: int = 256


@dataclass(frozen=True)
class Pair:
    """Trained models; ``about`` says by what and how well, as plain data."""

    target: ByteModel
    draft: ByteModel
    block: BlockDrafter
    about: dict[str, Any]


def untrained(recipe: Recipe) -> Pair:
    """The models before training."""
    torch.manual_seed(recipe.seed)
    target, draft = ByteModel(recipe.target), ByteModel(recipe.draft)
    return Pair(target, draft, BlockDrafter(recipe.target.width, BLOCK_DEPTH), {"recipe": asdict(recipe)})


def train_pair(recipe: Recipe, corpus: Corpus) -> Pair:
    """Train the target, the draft model on the same text, and the block drafter on the target's states."""
    pair = untrained(recipe)
    plan = Plan(recipe.target_steps, context=recipe.context)
    target = train(pair.target, corpus, plan, recipe.seed + 1)
    draft = train(pair.draft, corpus, replace(plan, steps=recipe.draft_steps), recipe.seed + 2)
    block_plan = replace(plan, steps=recipe.block_steps)
    block_cpu_s = train_block(pair.block, pair.target, corpus, block_plan, recipe.seed + 3)
    about = {
        **pair.about,
        "corpus_sha256": corpus.sha256,
        "corpus_bytes": {kind: len(text) for kind, text in corpus.train.items()},
        "target": {"parameters": pair.target.parameter_count, **asdict(target)},
        "draft": {"parameters": pair.draft.parameter_count, **asdict(draft)},
        "block": {"parameters": pair.block.parameter_count, "cpu_s": round(block_cpu_s, 1)},
    }
    return replace(pair, about=about)


def save_pair(pair: Pair, path: Path) -> None:
    """Write weights and ``about``."""
    parts = {name: getattr(pair, name).state_dict() for name in ("target", "draft", "block")}
    torch.save({**parts, "about": pair.about}, path)


def load_pair(recipe: Recipe, path: Path) -> Pair:
    """Read a pair; ``ValueError`` if it was made by another recipe."""
    kept = torch.load(path, weights_only=True)
    pair = untrained(recipe)
    if kept["about"]["recipe"] != pair.about["recipe"]:
        raise ValueError(f"{path} holds models of another recipe; give another folder or remove it")
    for name in ("target", "draft", "block"):
        getattr(pair, name).load_state_dict(kept[name])
    return replace(pair, about=kept["about"])
