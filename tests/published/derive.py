"""Length grids of the SpecDecode-Bench datasets, derived from its per-request statistics.

The benchmark publishes its traces without a licence, so only quantiles of prompt and answer lengths
are kept: 11 of each side, and 7 of the answers in each of five equal cells of the prompt's rank.

    python -m tests.published.derive --groundtruth ../shared/groundtruth --out scenarios/workloads
"""

from __future__ import annotations

import argparse
import csv
import hashlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrate.derive_workloads import dump, quantile_grid
from calibrate.profile import write_atomically

Int64 = NDArray[np.int64]

FILE = "sdbench_trace_per_request_k3.csv"
SOURCE = "https://github.com/SpecDecode-Bench/simulator, data/llama3.1-8B/combined_{}.jsonl (HEAD 2fdccbd)"
COMMAND = "python -m tests.published.derive --groundtruth ../shared/groundtruth --out scenarios/workloads"
NAMES = {"sdbench-gsm8k": ("gsm8k", "GSM8K"), "sdbench-cnn-dm": ("cnn", "CNN/DM")}
SIDE_P = (0.0, 0.05, 0.1, 0.25, 0.4, 0.5, 0.6, 0.75, 0.9, 0.95, 1.0)
CELL_P = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
CELLS = 5


def derive(name: str, groundtruth: Path) -> dict[str, Any]:
    """Workload file of one dataset, from the requests that the EAGLE arm answered."""
    dataset, title = NAMES[name]
    prompt, output = _lengths(groundtruth / FILE, dataset)
    by_prompt = output[np.argsort(prompt, kind="stable")]
    return {
        "schema": "leadline.workload/1",
        "name": name,
        "title": f"{title} as SpecDecode-Bench sent it to Llama-3.1-8B, greedy",
        "source": SOURCE.format(dataset),
        "source_sha256": hashlib.sha256((groundtruth / FILE).read_bytes()).hexdigest(),
        "licence": "none stated; quantiles only",
        "citation": "Liu et al., Speculative Decoding: Performance or Illusion? arXiv 2601.11580",
        "command": COMMAND,
        "statistics": _statistics(prompt, output),
        "input": quantile_grid(prompt, SIDE_P),
        "output": quantile_grid(output, SIDE_P),
        "joint": {
            "output_by_input_rank": [quantile_grid(cell, CELL_P) for cell in np.array_split(by_prompt, CELLS)]
        },
    }


def _lengths(path: Path, dataset: str) -> tuple[Int64, Int64]:
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    rows = [row for row in csv.DictReader(lines) if (row["dataset"], row["method"]) == (dataset, "eagle")]
    prompt = np.array([int(row["prompt_len"]) for row in rows], dtype=np.int64)
    return prompt, np.array([int(row["gen_len"]) for row in rows], dtype=np.int64)


def _statistics(prompt: Int64, output: Int64) -> dict[str, float]:
    """Figures by which draws from the grids can be checked against the source."""
    correlation = float(np.corrcoef(prompt, output)[0, 1])
    figures = {"requests": float(len(prompt)), "input_output_correlation": correlation}
    for side, tokens in (("input", prompt), ("output", output)):
        figures |= {f"{side}_mean": float(tokens.mean()), f"{side}_p50": float(np.median(tokens))}
    return {name: round(value, 4) for name, value in figures.items()}


def main(arguments: list[str] | None = None) -> None:
    """Write one file per dataset."""
    parser = argparse.ArgumentParser(prog="tests.published.derive", description=__doc__)
    parser.add_argument("--groundtruth", type=Path, required=True, help="folder of the published tables")
    parser.add_argument("--out", type=Path, required=True, help="folder to write the workload files to")
    options = parser.parse_args(arguments)
    for name in NAMES:
        write_atomically(options.out / f"{name}.json", dump(derive(name, options.groundtruth)))


if __name__ == "__main__":
    main()
