"""The page on recorded acceptance (docs/recorded-acceptance.md), from the shipped traces alone.

python -m tests.acceptance.recorded_page --out docs/recorded-acceptance.md
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from string import Template
from typing import Any, Final

import numpy as np

from calibrate.profile import write_atomically
from sim.acceptance.trace import read_trace
from sim.scenario.catalogue import shipped
from tests.acceptance.heldout import DEPTHS, PROCESSES, TRACES, Errors, study

TEXT: Final = Path(__file__).with_name("recorded-acceptance.md.in")
"""The page's sentences, with a ``$name`` for each table and number."""


def page() -> str:
    """Describe every trace and study the pair's; Markdown."""
    studies = {
        (label, process): study(name, process) for label, name in TRACES.items() for process in PROCESSES
    }
    return Template(TEXT.read_text(encoding="utf-8")).substitute(
        described(),
        means=table(f"trace | process | {' | '.join(f'k = {k}' for k in DEPTHS)} | worst", _means(studies)),
        spreads=table("trace | process | sd | p5 | p95", _predicted_spreads(studies)),
    )


def described() -> dict[str, str]:
    """The tables that stand beside the traces already, by name; the study is not among them."""
    about = {name: description(path) for name, path in shipped("acceptance").items()}
    return {
        "traces": table("trace | requests | tokens per round at k = 1, 2, 4, 8 | kB", _trace_rows(about)),
        "check": table("trace | k = 1 | 2 | 4 | 8", _check_rows(about)),
        "by_position": table(
            "trace | accepted given those before | the same, from any start | whatever went before",
            _shapes(about),
        ),
        "spread": table(
            "trace | sd of requests' mean chance | if all were alike | lag-1 | lag-4", _spreads(about)
        ),
        "confidence": table(
            "trace | AUC | mean claim | mean chance | ECE raw | with a temperature | on a line "
            "| claim behind a rejection: replay | real",
            _confidence(about),
        ),
        "origin": _origin(about["byte-pair-greedy"]),
        "loops": _loops(),
    }


def description(trace: Path) -> dict[str, Any]:
    """What stands beside a trace, and its size."""
    path = trace.with_name(trace.name.removesuffix(".jsonl.gz") + ".json")
    about: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return {**about, "bytes": trace.stat().st_size}


def table(head: str, rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; ``head`` separates its columns by bars."""
    columns = head.count("|") + 1
    lines = [f"| {head} |", "|" + "---|" * columns, *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join(lines)


def _loops() -> str:
    """Share of greedy requests whose last third is accepted throughout."""
    rows = read_trace(shipped("acceptance")["byte-pair-greedy"])
    ends = [row.chances(row.positions, 1)[-row.positions // 3 :, 0] for row in rows]
    return f"{100 * np.mean([bool((end == 1).all()) for end in ends]):.0f} %"


Abouts = dict[str, dict[str, Any]]
Studies = dict[tuple[str, str], Errors]


def _trace_rows(about: Abouts) -> Iterable[list[str]]:
    for name, each in about.items():
        means = ", ".join(f"{mean:.2f}" for mean in each["statistics"]["tokens_per_round"].values())
        yield [f"`{name}`", str(each["requests"]), means, f"{each['bytes'] / 1000:.0f}"]


def _check_rows(about: Abouts) -> Iterable[list[str]]:
    for name, each in about.items():
        found = each["check"]
        cells = (
            f"{found[k]['difference_percent']:+.2f} ± {found[k]['standard_error_percent']:.2f} %"
            if (k := str(depth)) in found
            else ""
            for depth in DEPTHS
        )
        yield [f"`{name}`", *cells]


def _shapes(about: Abouts) -> Iterable[list[str]]:
    for name, each in about.items():
        found = each["statistics"]
        yield [
            f"`{name}`",
            *(
                " ".join(f"{rate:.2f}" for rate in found[key])
                for key in ("conditional_by_position", "conditional_from_any_start", "mean_chance_by_draft")
            ),
        ]


def _spreads(about: Abouts) -> Iterable[list[str]]:
    for name, each in about.items():
        found, lags = each["statistics"]["requests"], each["statistics"]["autocorrelation_of_chance"]
        alike = found["mean_chance_sd_if_equal_and_independent"]
        yield [
            f"`{name}`",
            f"{found['mean_chance_sd']:.3f}",
            f"{alike:.3f}",
            f"{lags['1']:.2f}",
            f"{lags['4']:.2f}",
        ]


def _confidence(about: Abouts) -> Iterable[list[str]]:
    for name, each in about.items():
        found, check = each["statistics"]["confidence"], each["check"]["4"]
        yield [
            f"`{name}`",
            f"{found['auc']:.2f}",
            f"{found['mean']:.2f}",
            f"{np.mean(each['statistics']['mean_chance_by_draft']):.2f}",
            f"{found['ece']:.3f}",
            f"{found['ece_at_temperature']:.3f}",
            f"{found['ece_on_line']:.3f}",
            f"{check['confidence_behind_rejection_replay']:.2f}",
            f"{check['confidence_behind_rejection']:.2f}",
        ]


def _means(studies: Studies) -> Iterable[list[str]]:
    for (label, process), found in studies.items():
        yield [label, process, *(_percent(error) for error in found.mean), f"{100 * found.worst_mean:.1f} %"]


def _predicted_spreads(studies: Studies) -> Iterable[list[str]]:
    for (label, process), found in studies.items():
        yield [label, process, *(_percent(error) for error in (found.sd, found.p5, found.p95))]


def _percent(error: float) -> str:
    return f"{100 * error:+.1f} %"


def _origin(about: dict[str, Any]) -> str:
    made, models = about["made"], about["models"]
    cpu_s = sum(models[name]["cpu_s"] for name in ("target", "draft", "block"))
    lines = [
        f"Measured on {made['date']}, {made['device']}, torch {made['torch']}, Python {made['python']}:",
        *(f"{name} of {_size(models[name])};" for name in ("target", "draft")),
        f"block of {models['block']['parameters']:,} parameters.",
        f"Training took {cpu_s:.0f} CPU seconds on a busy machine. {made.get('note', '')}",
        f"\n    {made['command']}",
    ]
    return "\n".join(lines)


def _size(model: dict[str, Any]) -> str:
    return f"{model['parameters']:,} parameters, {model['held_out_nats']} nats per held-out byte"


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/recorded-acceptance.md"))
    write_atomically(parser.parse_args().out, page())


if __name__ == "__main__":
    main()
