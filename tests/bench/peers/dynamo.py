"""Dynamo's mocker (PyPI: ai-dynamo): offline replay of fixed lengths at a fixed interval, built-in timing."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Final

from tests.bench.peers.sides import Absent, Facts, Side

NAME: Final = "Dynamo mocker"


def dynamo(home: Path, results: Path, count: int, rate: int, prompt: int, output: int) -> Side | Absent:
    """Dynamo's replay; needs ``dynamo-env`` (a virtual environment) in ``home``."""
    python = home / "dynamo-env" / "bin" / "python"
    if not python.exists():
        return Absent(NAME, "no environment dynamo-env in the folder of peers")
    report = results / "dynamo.json"
    flags = {
        "--input-tokens": str(prompt),
        "--output-tokens": str(output),
        "--request-count": str(count),
        "--arrival-interval-ms": f"{1000 / rate:g}",
        "--report-json": str(report),
    }
    words = tuple(word for pair in flags.items() for word in pair)
    command = (str(python), "-m", "dynamo.replay", *words)
    return Side(NAME, _version(python), command, results, lambda text: _facts(text, report))


def _version(python: Path) -> str:
    code = "from importlib.metadata import version; print(version('ai-dynamo'))"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def _facts(output: str, report: Path) -> Facts:
    found = json.loads(report.read_text())
    wall = re.search(r"Wall Time \(ms\): ([\d.,]+)", output)
    loop_s = float(wall[1].replace(",", "")) / 1e3 if wall else None
    return Facts(found["completed_requests"], found["duration_ms"] / 1e3, loop_s)
