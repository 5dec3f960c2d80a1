"""Derive the shipped workloads from the Azure LLM inference traces of 2023.

Keeps what a simulation needs and no more: a quantile grid of each length, output grids per cell
of the input's rank (the joint), the request rate per time bin, and the statistics to check them
by. The traces are CC-BY-4.0, published with Splitwise (ISCA 2024).

    python -m calibrate.derive_workloads --azure DIR --out scenarios/workloads
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import os
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Int64 = NDArray[np.int64]

TAIL = (0.996, 0.997, 0.998, 0.999, 0.9995)
MARGINAL_P = tuple(sorted({i / 200 for i in range(201)} | set(TAIL)))
CELL_P = tuple(sorted({i / 50 for i in range(51)} | {0.985, 0.99, 0.9925, 0.995, 0.9975, 0.99875}))
CELLS = 20
BIN_S = 30
NS_PER_S = 1_000_000_000

TRACES = {
    "azure-2023-code": ("AzureLLMInferenceTrace_code.csv", "Azure 2023, code completion"),
    "azure-2023-conversation": ("AzureLLMInferenceTrace_conv.csv", "Azure 2023, conversation"),
}
SOURCE = "https://github.com/Azure/AzurePublicDataset, data/"
LICENCE = "CC-BY-4.0"
CITATION = (
    "Pratyush Patel, Esha Choukse, Chaojie Zhang, Aashaka Shah, Inigo Goiri, Saeed Maleki, Ricardo "
    "Bianchini. Splitwise: Efficient Generative LLM Inference Using Phase Splitting. ISCA 2024."
)
COMMAND = "python -m calibrate.derive_workloads --azure DIR --out scenarios/workloads"


def read_azure(path: Path) -> tuple[Int64, Int64, Int64]:
    """Arrival (ns from the first), input and output tokens of one Azure trace."""
    with path.open(encoding="utf-8", newline="") as lines:
        rows = [
            (_timestamp_ns(row["TIMESTAMP"]), int(row["ContextTokens"]), int(row["GeneratedTokens"]))
            for row in csv.DictReader(lines)
        ]
    arrival_ns, prompt, output = np.array(rows, dtype=np.int64).T
    return arrival_ns - arrival_ns[0], prompt, output


def _timestamp_ns(text: str) -> int:
    whole, _, fraction = text.partition(".")
    epoch = datetime.fromisoformat(whole + "+00:00").timestamp()
    return int(epoch) * NS_PER_S + int(fraction.ljust(9, "0"))


def quantile_grid(tokens: Int64, p: tuple[float, ...]) -> dict[str, Any]:
    """Sample quantiles, rounded to whole tokens.

    Hazen's plotting positions give the largest observation its full weight, which keeps the mean.
    """
    at = np.rint(np.quantile(tokens, p, method="hazen")).astype(int)
    return {"p": list(p), "tokens": at.tolist()}


def joint_grid(prompt: Int64, output: Int64) -> dict[str, Any]:
    """One output grid per cell of the input's rank; ties keep the order of the trace."""
    by_input = output[np.argsort(prompt, kind="stable")]
    cells = np.array_split(by_input, CELLS)
    return {"output_by_input_rank": [quantile_grid(cell, CELL_P) for cell in cells]}


def rate_profile(arrival_ns: Int64) -> dict[str, Any]:
    """Rate (requests per second) in whole bins; the last, partial bin is left out."""
    bins = int(arrival_ns[-1]) // (BIN_S * NS_PER_S)
    counts = np.bincount(arrival_ns // (BIN_S * NS_PER_S), minlength=bins)[:bins]
    return {"bin_s": BIN_S, "per_s": [round(int(count) / BIN_S, 4) for count in counts]}


def statistics(arrival_ns: Int64, prompt: Int64, output: Int64) -> dict[str, float]:
    """Figures by which a derived workload can be checked against its trace."""
    gaps_s = np.diff(arrival_ns) / NS_PER_S
    figures = {
        "requests": len(arrival_ns),
        "span_s": arrival_ns[-1] / NS_PER_S,
        "rate_per_s": len(arrival_ns) / (arrival_ns[-1] / NS_PER_S),
        "gap_cv": gaps_s.std() / gaps_s.mean(),
        "input_output_correlation": np.corrcoef(prompt, output)[0, 1],
    }
    for side, tokens in (("input", prompt), ("output", output)):
        figures[f"{side}_mean"] = tokens.mean()
        figures |= {f"{side}_p{q}": np.quantile(tokens, q / 100) for q in (50, 90, 99)}
        figures[f"{side}_max"] = tokens.max()
    return {name: round(float(value), 4) for name, value in figures.items()}


def derive(name: str, directory: Path) -> dict[str, Any]:
    """Workload file of one trace in ``directory``."""
    file, title = TRACES[name]
    arrival_ns, prompt, output = read_azure(directory / file)
    return {
        "schema": "leadline.workload/1",
        "name": name,
        "title": title,
        "source": SOURCE + file,
        "source_sha256": hashlib.sha256((directory / file).read_bytes()).hexdigest(),
        "licence": LICENCE,
        "citation": CITATION,
        "command": COMMAND,
        "statistics": statistics(arrival_ns, prompt, output),
        "input": quantile_grid(prompt, MARGINAL_P),
        "output": quantile_grid(output, MARGINAL_P),
        "joint": joint_grid(prompt, output),
        "rate": rate_profile(arrival_ns),
    }


def dump(workload: dict[str, Any]) -> str:
    """JSON text with one line per key and per joint cell, the same bytes for the same workload."""
    lines = [f' "{key}": {_value(value)}' for key, value in workload.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _value(value: Any) -> str:
    if isinstance(value, dict) and "output_by_input_rank" in value:
        cells = ",\n  ".join(_value(cell) for cell in value["output_by_input_rank"])
        return '{"output_by_input_rank": [\n  ' + cells + "]}"
    return json.dumps(value, ensure_ascii=True)


def main(arguments: list[str] | None = None) -> None:
    """Write one file per trace."""
    parser = argparse.ArgumentParser(prog="calibrate.derive_workloads", description=__doc__)
    parser.add_argument(
        "--azure", type=Path, required=True, help="folder of the AzureLLMInferenceTrace_*.csv files"
    )
    parser.add_argument("--out", type=Path, required=True, help="folder to write the workload files to")
    options = parser.parse_args(arguments)
    for name in TRACES:
        unfinished = options.out / f".{name}.json.unfinished"
        unfinished.write_text(dump(derive(name, options.azure)), encoding="utf-8")
        os.replace(unfinished, options.out / f"{name}.json")


if __name__ == "__main__":
    main()
