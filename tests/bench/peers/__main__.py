"""Command line: ``python -m tests.bench.peers --out docs/data/peers.json --page docs/speed.md``."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.bench.__main__ import machine
from tests.bench.peers.cases import cases
from tests.bench.peers.measure import measured
from tests.bench.peers.ours import ROOT
from tests.bench.peers.page import page

SCHEMA = "leadline.peers/1"


def main() -> None:
    """Measure, and write the numbers and the page."""
    asked = _arguments()
    with tempfile.TemporaryDirectory(prefix="peers-") as folder:
        work = Path(folder)
        places = {"$WORK": work, "$LEADLINE_PEERS": asked.peers}
        found: dict[str, Any] = {
            "schema": SCHEMA,
            "date": datetime.now(UTC).strftime("%Y-%m-%d"),
            "machine": f"{machine()}, {os.cpu_count()} cores",
            "commit": _commit(),
            "requests": asked.requests,
            "repeats": asked.repeats,
            "cases": [
                measured(case, places, asked.requests, asked.repeats)
                for case in cases(asked.peers, work, asked.requests)
                if asked.only is None or case.title.lower().startswith(asked.only.lower())
            ],
        }
    text = page(found)
    if asked.out is not None:
        asked.out.parent.mkdir(parents=True, exist_ok=True)
        asked.out.write_text(json.dumps(found, indent=1) + "\n")
    if asked.page is not None:
        asked.page.write_text(text)
    print(text)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.peers", description=__doc__)
    parser.add_argument(
        "--peers",
        type=Path,
        default=Path(os.environ.get("LEADLINE_PEERS", "peers")),
        help="folder that the peers are installed in; default: $LEADLINE_PEERS, or peers",
    )
    parser.add_argument("--out", type=Path, help="file for the numbers, JSON")
    parser.add_argument("--page", type=Path, help="file for the page, Markdown")
    parser.add_argument("--requests", type=int, default=10_000, help="requests of every case")
    parser.add_argument("--repeats", type=int, default=3, help="counted runs of every side")
    parser.add_argument("--only", help="one case, by the start of its peer's name")
    asked = parser.parse_args()
    asked.peers = asked.peers.absolute()
    return asked


def _commit() -> str:
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=8"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    main()
