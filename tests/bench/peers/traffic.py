"""The traffic of the Vidur case: one list of requests, written in the form that each side reads."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Final

import numpy as np

from sim.streams import uniforms
from sim.workload.readers import TRACE_SCHEMA
from sim.workload.requests import Requests

LONGEST_TOKENS: Final = 4096
RATE_PER_S: Final = 6.45


def build_traffic(lengths: Path, count: int) -> Requests:
    """Poisson arrivals with the first ``count`` lengths of a file of Vidur's, repeated if it is shorter.

    Prompts are cut so that prompt and output are at most 4,096 tokens together, as Vidur does.
    """
    prompt, output = _lengths(lengths)
    rows = np.arange(count) % len(prompt)
    gaps_s = -np.log(uniforms(0, "bench arrivals", 0, count)) / RATE_PER_S
    return Requests(
        arrival_ns=np.rint(np.cumsum(gaps_s) * 1e9).astype(np.int64),
        prompt_tokens=prompt[rows],
        output_tokens=output[rows],
        class_id=np.zeros(count, dtype=np.int64),
    )


def _lengths(path: Path) -> tuple[np.ndarray, np.ndarray]:
    with path.open(newline="") as file:
        names = ("num_prefill_tokens", "num_decode_tokens")
        rows = [[int(row[name]) for name in names] for row in csv.DictReader(file)]
    prompt, output = np.array(rows, dtype=np.int64).T
    output = np.clip(output, 1, LONGEST_TOKENS - 1)
    return np.clip(prompt, 1, LONGEST_TOKENS - output), output


def write_for_vidur(path: Path, requests: Requests) -> None:
    """CSV of Vidur's trace replay; nine decimals of a second are the nanoseconds themselves."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("arrived_at", "num_prefill_tokens", "num_decode_tokens"))
        for arrival, prompt, output in _rows(requests):
            writer.writerow((f"{arrival // 10**9}.{arrival % 10**9:09d}", prompt, output))


def write_for_leadline(path: Path, requests: Requests) -> None:
    """JSONL of leadline's own trace."""
    with path.open("w") as file:
        file.write(json.dumps({"schema": TRACE_SCHEMA}) + "\n")
        for arrival, prompt, output in _rows(requests):
            row = {"arrival_ns": arrival, "prompt_tokens": prompt, "output_tokens": output}
            file.write(json.dumps(row) + "\n")


def _rows(requests: Requests) -> list[tuple[int, int, int]]:
    columns = (requests.arrival_ns, requests.prompt_tokens, requests.output_tokens)
    return list(zip(*(column.tolist() for column in columns), strict=True))
