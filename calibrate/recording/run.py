"""From a recipe to traces: train or load, record, check against real decoding, write."""

from __future__ import annotations

import platform
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from calibrate.recording.corpus import Corpus, standard_library
from calibrate.recording.files import rounded, write_about, write_trace
from calibrate.recording.pair import BLOCK_DEPTH, Pair, Recipe, load_pair, save_pair, train_pair
from calibrate.recording.record import Recording, record
from calibrate.recording.sampling import GREEDY, generate
from calibrate.recording.speculate import speculate
from calibrate.recording.statistics import DEPTHS, SPREAD_DEPTH, by_start, describe, walk
from calibrate.timing.machine import host_cpu

BLOCK_SHARE: Final = 4
"""A block drafter's rows are so many times longer, so it gets so many times fewer requests."""

REPEATS: Final = 4
"""Real decodings per depth when sampling; greedy ones are all the same."""


@dataclass(frozen=True)
class Options:
    """What to record; prompt, output and one block fit the training context."""

    out: Path
    temperatures: tuple[float, ...]
    requests: int = 256
    prompt_tokens: int = 56
    output_tokens: int = 192
    threads: int = 1
    command: str = ""
    recipe: Recipe = field(default_factory=Recipe)

    def __post_init__(self) -> None:
        room = self.recipe.context - DEPTHS[-1]
        if self.prompt_tokens + self.output_tokens > room:
            raise ValueError(
                f"prompt and output have {self.prompt_tokens + self.output_tokens} bytes together; at most "
                f"{room} fit the training context, beyond which acceptance means nothing"
            )
        if self.requests < 2 * BLOCK_SHARE:
            raise ValueError(f"--requests {self.requests} is too few; give at least {2 * BLOCK_SHARE}")


def run(options: Options, say: Callable[[str], None]) -> list[Path]:
    """Write one trace and its description per drafter and temperature; returns the traces."""
    torch.set_num_threads(options.threads)
    options.out.mkdir(parents=True, exist_ok=True)
    corpus = standard_library()
    pair = _pair(options, corpus, say)
    luck = torch.Generator().manual_seed(options.recipe.seed + 10)
    prompts, kinds = corpus.prompts(options.requests, options.prompt_tokens, luck)
    written = []
    for temperature in options.temperatures:
        for drafter, (requests, recording) in _record(options, pair, prompts, temperature).items():
            say(f"{drafter} at {sampling_name(temperature)}: checking against real decoding")
            about = _about(options, pair, drafter, temperature, recording)
            about["check"] = check(options, pair, drafter, prompts[requests], temperature, recording)
            path = options.out / f"byte-{drafter}-{sampling_name(temperature)}.jsonl.gz"
            write_trace(path, recording, kinds[requests])
            write_about(options.out / f"byte-{drafter}-{sampling_name(temperature)}.json", about)
            written.append(path)
    return written


def sampling_name(temperature: float) -> str:
    """``greedy``, or ``t1``, ``t0.7``."""
    return "greedy" if temperature == GREEDY else f"t{temperature:g}"


def _pair(options: Options, corpus: Corpus, say: Callable[[str], None]) -> Pair:
    path = options.out / "pair.pt"
    if path.is_file():
        return load_pair(options.recipe, path)
    say("training: minutes")
    pair = train_pair(options.recipe, corpus)
    save_pair(pair, path)
    return pair


def _record(
    options: Options, pair: Pair, prompts: Tensor, temperature: float
) -> dict[str, tuple[slice, Recording]]:
    """Which requests each drafter's recording holds, and the recording."""
    luck = torch.Generator().manual_seed(options.recipe.seed + 11)
    text = generate(pair.target, prompts, options.output_tokens + BLOCK_DEPTH, temperature, luck)
    found = record(pair, text, options.prompt_tokens, temperature)
    kept = {"pair": slice(None), "block": slice(0, options.requests // BLOCK_SHARE)}
    return {
        name: (kept[name], rounded(Recording(each.chance[kept[name]], each.confidence[kept[name]])))
        for name, each in found.items()
    }


def _about(
    options: Options, pair: Pair, drafter: str, temperature: float, recording: Recording
) -> dict[str, Any]:
    sampling = "greedy" if temperature == GREEDY else f"temperature {temperature:g}, target and drafter alike"
    return {
        "title": f"byte models, {_DRAFTERS[drafter]}, {sampling_name(temperature)}",
        "kind": "measured",
        "sampling": sampling,
        "requests": len(recording.chance),
        "prompt_tokens": options.prompt_tokens,
        "output_tokens": options.output_tokens,
        "made": {
            "date": datetime.now(UTC).date().isoformat(),
            "command": options.command,
            "torch": str(torch.__version__),
            "python": platform.python_version(),
            "device": f"{host_cpu()}, {options.threads} threads",
        },
        "models": pair.about,
        "statistics": describe(recording.chance, recording.confidence),
    }


_DRAFTERS: Final = {"pair": "a draft model", "block": f"a block drafter of {BLOCK_DEPTH}"}


def check(
    options: Options, pair: Pair, drafter: str, prompts: Tensor, temperature: float, recording: Recording
) -> dict[str, Any]:
    """Tokens per round of real speculative decoding and of the recording, by depth."""
    deepest = pair.block.depth if drafter == "block" else DEPTHS[-1]
    return {
        str(depth): _compare(options, pair, drafter, prompts, temperature, recording, depth)
        for depth in DEPTHS
        if depth <= deepest
    }


def _compare(
    options: Options,
    pair: Pair,
    drafter: str,
    prompts: Tensor,
    temperature: float,
    recording: Recording,
    depth: int,
) -> dict[str, float]:
    luck = torch.Generator().manual_seed(options.recipe.seed + 20 + depth)
    repeats = 1 if temperature == GREEDY else REPEATS
    runs = [
        speculate(pair, drafter, prompts, options.output_tokens, depth, temperature, luck)
        for _ in range(repeats)
    ]
    tokens = torch.stack([each.tokens for each in runs]).double().numpy()
    rounds = torch.stack([each.rounds for each in runs]).double().numpy()
    engine, replay = float(tokens.sum() / rounds.sum()), walk(recording.chance, depth)
    rest = (tokens - engine * rounds).mean(axis=0) - (replay.tokens - replay.tokens_per_round * replay.rounds)
    error = float(rest.std(ddof=1) * np.sqrt(len(rest)) / replay.rounds.sum())
    found = {
        "engine": round(engine, 4),
        "replay": round(replay.tokens_per_round, 4),
        "difference_percent": round(100 * (replay.tokens_per_round / engine - 1), 2),
        "standard_error_percent": round(100 * error / engine, 2),
    }
    if depth == SPREAD_DEPTH:
        found["confidence_behind_rejection"] = round(float(np.mean([r.behind_confidence for r in runs])), 3)
        found["confidence_behind_rejection_replay"] = round(_behind(recording, depth), 3)
    return found


def _behind(recording: Recording, depth: int) -> float:
    """Mean recorded confidence of the drafts behind a rejected one, over rounds of this depth."""
    reach = np.cumprod(by_start(recording.chance, depth), axis=2)
    starts = walk(recording.chance, depth).starts[:, :, None]
    lost = starts * (1 - reach[:, :, :-1])  # drafts 1.. are lost when one before them was rejected
    claims = by_start(recording.confidence, depth)[:, :, 1:]
    return float((lost * claims).sum() / lost.sum())
