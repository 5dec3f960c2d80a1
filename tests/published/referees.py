"""What real engines said of the simulator: three referees, a row or two each."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from tests.referee.cpu_clock.campaign.compare import WITHIN, compare, pairs
from tests.referee.cpu_clock.campaign.recordings import load, undisturbed
from tests.referee.cpu_clock.predict import OPEN_METRICS

ROOT: Final = Path(__file__).parents[2]
SERVED: Final = ROOT / "docs" / "data" / "validate.json"
"""What ``leadline validate --all --out`` wrote."""
RECORDED: Final = ROOT / "tests" / "referee" / "recorded"
HEAD: Final = "referee | what was compared | rows | within the mark | mean error | orders judged | wrong"
NAMES: Final = {"tpot_mean_ms": "mean TPOT", "e2el_mean_ms": "mean E2EL", "output_tokens_per_s": "tok/s"}


def rows() -> list[list[str]]:
    """All referees."""
    return [modelled_row(), *campaign_rows(), *served_rows(json.loads(SERVED.read_text(encoding="utf-8")))]


def modelled_row() -> list[str]:
    """The recordings that the tests replay step by step."""
    count = len(list(RECORDED.glob("*.json.gz")))
    return [
        "vLLM 0.32, [known step costs](referee.md)",
        "every step, first token and finish, to the last digit",
        f"{count} recorded configurations of 277 drawn",
        f"{count}",
        "0",
        "",
        "",
    ]


def campaign_rows() -> Iterable[list[str]]:
    """The real vLLM on the CPU clock."""
    served = compare(undisturbed(load()), whole=False)
    ranked = [pair for pair in pairs(served) if pair.clear]
    orders = (str(len(ranked)), str(sum(not pair.right for pair in ranked)))
    for metric in OPEN_METRICS:
        if metric in NAMES:
            errors = [each.error(metric) for each in served]
            yield [
                "vLLM 0.32, [CPU clock](referee-cpu.md)",
                f"{NAMES[metric]}, {WITHIN:.0%} of the median of repetitions",
                str(len(errors)),
                str(sum(abs(error) <= WITHIN for error in errors)),
                _percent(errors),
                *(orders if metric == "e2el_mean_ms" else ("", "")),
            ]


def served_rows(found: dict[str, Any]) -> Iterable[list[str]]:
    """The reference engine, from the file of one full run."""
    for metric, name in NAMES.items():
        cells = [cell["metrics"][metric] for cell in found["cells"]]
        orders = [order for order in found["orders"] if order["metric"] == metric]
        yield [
            f"[reference engine](validate.md), {found['device']}",
            f"{name}, 10 % or 1.5 x the spread of the runs",
            str(len(cells)),
            str(sum(cell["holds"] for cell in cells)),
            _percent([cell["error"] for cell in cells]),
            str(len(orders)),
            str(sum(order["wrong"] for order in orders)),
        ]


def _percent(errors: list[float]) -> str:
    return f"{100 * sum(errors) / len(errors):+.1f} %"
