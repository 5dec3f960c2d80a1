"""The sentences of docs/validation.md; its numbers come from ``page``."""

from __future__ import annotations

from typing import Final

DRAFTER_NAMES: Final = {"none": "none", "eagle": "EAGLE", "ngram": "n-gram"}

BATCHES = "2 | 4 | 8 | 16 | 24 | 32 | 48 | 56 | 64"

INTRODUCTION: Final = "x"
BENCH: Final = "x"
BENCH_HEAD: Final = (
    "dataset | drafter | batch | published | simulated | error | within 10 % | composed costs | error"
)
BENCH_INPUTS: Final = "x"
BENCH_READING: Final = "x"
SHARES_HEAD: Final = "drafter | batch | draft | verify | sampling and overhead"
SHARES_READING: Final = "x"
PAPER: Final = "x"
PAPER_HEAD: Final = f"engine | drafter | | {BATCHES}"
CROSSING_HEAD: Final = "engine | drafter | loses from, published | loses from, simulated | within a grid step"
PAPER_INPUTS: Final = "x"
PAPER_READING: Final = "x"
IMPLIED_HEAD: Final = f"engine | drafter | {BATCHES}"
PAPER_CAUSE: Final = "x"
HEADS_HEAD: Final = f"engine | expected | {BATCHES}"
HEADS_READING: Final = "x"
