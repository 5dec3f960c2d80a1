"""Profiles of an RTX PRO 6000 beside the vLLM 0.19 logs of the host whose layers they are from.

LLMServingSim (MIT) publishes both: 300 ShareGPT requests at ten a second, 128 sequences at most. In a
second without prefill, the sequences that run over the tokens they emit are the time of a step.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from calibrate.compose.evaluate import decode_shape, pass_ns
from calibrate.compose.tables import Folders
from calibrate.profile import load_profile
from tests.calibrate.conftest import SHARED

FOLDERS = {
    "llama-3.1-8b-rtx-pro-6000": ("Llama-3.1-8B", 1),
    "qwen3-32b-rtx-pro-6000-tp2": ("Qwen3-32B", 1),
    "qwen3-30b-a3b-rtx-pro-6000-dp2-ep2": ("Qwen3-30B-A3B-Instruct-2507", 2),
}
BOUNDS = {
    # mean and largest error; from 16 sequences on for the mixture, whose lone rank waits for the other
    "llama-3.1-8b-rtx-pro-6000": (0.07, 0.16),
    "qwen3-32b-rtx-pro-6000-tp2": (0.04, 0.15),
    "qwen3-30b-a3b-rtx-pro-6000-dp2-ep2": (0.09, 0.32),
}
MOMENTS = 20
"""At which the running sequences of a second are counted."""


class Second(NamedTuple):
    """One second of plain decoding: sequences a card, their mean context, ms of a step."""

    sequences: float
    context: float
    step_ms: float


def _files(name: str, folders: Folders) -> tuple[Path, Path]:
    run, _ = FOLDERS[name]
    shared = SHARED / "data" / "llmservingsim"
    if (found := shared / f"vllm_RTXPRO6000_{run}_requests.jsonl").exists():
        return found, shared / f"vllm_RTXPRO6000_{run}_timeseries.csv"
    if folders.bundles is None:
        pytest.skip("needs LLMServingSim's bench/examples (LEADLINE_LLMSERVINGSIM)")
    log = folders.bundles.parents[1] / "bench" / "examples" / "RTXPRO6000" / run / "vllm"
    return log / "requests.jsonl", log / "timeseries.csv"


def _seconds(requests_file: Path, series: Path, cards: int) -> Iterator[Second]:
    requests = [json.loads(line) for line in requests_file.read_text().splitlines()]
    start = min(request["scheduled_ts"] for request in requests)
    with series.open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            emitted, prefilled = float(row["gen_throughput"]), float(row["prompt_throughput"])
            end = start + float(row["t"])
            held = [_contexts(requests, end - 1 + (moment + 0.5) / MOMENTS) for moment in range(MOMENTS)]
            running = sum(map(len, held)) / MOMENTS
            if prefilled == 0 and emitted > 0 and running >= 1:
                context = sum(map(sum, held)) / MOMENTS / running
                yield Second(running / cards, context, running / emitted * 1e3)


def _contexts(requests: list[dict[str, float]], at: float) -> list[float]:
    """Context of every sequence that decodes at a moment, its tokens spread evenly over its time."""
    return [
        request["input_toks"]
        + request["output_toks"]
        * (at - request["first_token_ts"])
        / (request["last_token_ts"] - request["first_token_ts"])
        for request in requests
        if request["first_token_ts"] <= at <= request["last_token_ts"]
    ]


@pytest.mark.parametrize("name", FOLDERS)
def test_plain_steps_are_near_those_of_the_log(name: str, folders: Folders, shipped: Path) -> None:
    """Nothing is fitted to these logs; that this host's cards have a slower link was learnt from one."""
    target = load_profile(shipped / f"{name}.json").target
    least = 16 if FOLDERS[name][1] > 1 else 1
    errors = []
    for second in _seconds(*_files(name, folders), FOLDERS[name][1]):
        if second.sequences >= least:
            shape = decode_shape(second.sequences, second.context)
            parts = (target.verify, target.accept, target.host)
            errors.append(abs(sum(pass_ns(terms, shape) for terms in parts) / 1e6 / second.step_ms - 1))
    mean, largest = BOUNDS[name]
    assert len(errors) > 10
    assert sum(errors) / len(errors) < mean
    assert max(errors) < largest
