"""The output shown in docs/validate.md, from the file of the run that it shows.

python -m tests.docs.validate    # after: leadline validate --seed N --all --out docs/data/validate.json
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from calibrate.profile import write_atomically
from calibrate.validate import report
from calibrate.validate.compare import Served, Verdict
from calibrate.validate.measures import StepError
from calibrate.validate.overhead import Loop, Overhead
from calibrate.validate.reference import Finding

DOCS: Final = Path(__file__).resolve().parents[2] / "docs"
PAGE: Final = DOCS / "validate.md"
DATA: Final = DOCS / "data" / "validate.json"
START, END = "<!-- output -->\n\n", "\n<!-- /output -->"


def finding(data: dict[str, Any]) -> Finding:
    """The run as it was judged; its profile is not in the file, and not shown."""
    overhead = data["overhead"]
    loops = {policy: Loop(**loop) for policy, loop in overhead["loops"].items()}
    return Finding(
        verdict=Verdict(tuple(map(_served, data["cells"]))),
        profile=None,  # type: ignore[arg-type]
        overhead=Overhead(**{**overhead, "loops": loops}),
        anchors_us=tuple(data["anchors_us"]),
        seed=data["seed"],
    )


def _served(cell: dict[str, Any]) -> Served:
    metrics = cell["metrics"]
    count = len(next(iter(metrics.values()))["engine"])
    return Served(
        load=cell["load"],
        policy=cell["policy"],
        simulated={name: found["simulated"] for name, found in metrics.items()},
        runs=tuple({name: found["engine"][i] for name, found in metrics.items()} for i in range(count)),
        step_errors=tuple(StepError(**each) for each in cell["steps"]),
    )


def shown(data: dict[str, Any]) -> Iterator[str]:
    """The command, and what it prints."""
    yield "```"
    yield f"$ leadline validate --seed {data['seed']} --out docs/data/validate.json"
    yield from report.lines(finding(data))
    yield "```"


def page(text: str, data: dict[str, Any]) -> str:
    """The page with its output put in."""
    before, rest = text.split(START)
    return before + START + "\n".join(shown(data)) + "\n" + END + rest.split(END)[1]


if __name__ == "__main__":
    found = json.loads(DATA.read_text(encoding="utf-8"))
    write_atomically(PAGE, page(PAGE.read_text(encoding="utf-8"), found))
