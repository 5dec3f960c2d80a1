"""BLIS (github.com/inference-sim/inference-sim): its own workload of fixed lengths at a fixed rate."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Final

from tests.bench.peers.sides import Absent, Facts, Side

NAME: Final = "BLIS"
BUDGET: Final = 2048
SEQUENCES: Final = 256


def blis(home: Path, count: int, rate: int, prompt: int, output: int) -> Side | Absent:
    """BLIS, Qwen3-14B on an H100; needs ``blis`` (a checkout) with the program ``blis`` built in it."""
    checkout, program = home / "blis", home / "blis" / "blis"
    if not program.exists():
        return Absent(NAME, "no program blis in a checkout blis in the folder of peers")
    flags = {
        "--model": "qwen/qwen3-14b",
        "--hardware": "H100",
        "--tp": "1",
        "--rate": str(rate),
        "--num-requests": str(count),
        "--max-num-seqs": str(SEQUENCES),
        "--max-num-batched-tokens": str(BUDGET),
        **_fixed("--prompt-tokens", prompt),
        **_fixed("--output-tokens", output),
    }
    words = tuple(word for pair in flags.items() for word in pair)
    return Side(NAME, _version(checkout), (str(program), "run", *words), checkout, _facts)


def _fixed(flag: str, tokens: int) -> dict[str, str]:
    return {flag: str(tokens), f"{flag}-stdev": "0", f"{flag}-min": str(tokens), f"{flag}-max": str(tokens)}


def _version(checkout: Path) -> str:
    command = ["git", "-C", str(checkout), "log", "-1", "--format=main of %cs, %h", "--abbrev=8"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _facts(output: str) -> Facts:
    metrics = json.loads(output[output.index("{") : output.rindex("}") + 1])
    return Facts(metrics["completed_requests"], metrics["vllm_estimated_duration_s"])
