"""The page that compares published measurements with simulations of them (docs/validation.md).

python -m tests.published.page --groundtruth ../shared/groundtruth --out docs/validation.md
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path
from string import Template
from typing import Final

from calibrate.profile import load_profile, write_atomically
from tests.published import a100, counters, drafts, referees, rtx, stated, summary, surfaces
from tests.published.judged import percent, table, verdict
from tests.published.measure import (
    SCENARIOS,
    SGLANG,
    TREE_ARMS,
    Arms,
    BenchCase,
    PaperCase,
    bench_cases,
    crossing,
    error,
    order,
    paper_cases,
    published_shares,
    shares,
    tree_ratios,
)

TEXT: Final = Path(__file__).with_name("validation.md.in")
"""The page's sentences, with a ``$name`` for each table."""

DRAFTER_NAMES: Final = {"none": "none", "eagle": "EAGLE", "ngram": "n-gram"}
BENCH_HEAD: Final = (
    "dataset | drafter | batch | published | simulated | error | within the mark | composed costs | error"
)
SHARES_HEAD: Final = "drafter | batch | draft | verify | sampling and overhead"
CROSSING_HEAD: Final = "engine | drafter | loses from, published | loses from, simulated | within a grid step"
TREE_HEAD: Final = "batch | drafts | published | composed costs | error | and SGLang's time | error"
ORDER_HEAD: Final = (
    "batch | published order | composed costs | as published | and SGLang's time | as published"
)
GROWTH_HEAD: Final = "drafts | GSM8K | CNN/DM | ShareGPT | InstructCoder | simulated, GSM8K"
TREE_BATCHES: Final = (1, 16, 64, 128)
BATCHES: Final = "2 | 4 | 8 | 16 | 24 | 32 | 48 | 56 | 64"


def page(groundtruth: Path) -> str:
    """Run every published scenario; Markdown."""
    bench = [(case, case.simulate(), case.simulate_composed()) for case in bench_cases(groundtruth)]
    paper = [(case, case.simulate()) for case in paper_cases(groundtruth)]
    eagle = next(arms for case, arms, _ in bench if (case.dataset, case.drafter) == ("GSM8K", "eagle"))
    tables = {
        "bench": table(BENCH_HEAD, (row for run in bench for row in bench_rows(*run))),
        "shares": table(SHARES_HEAD, share_rows(groundtruth, eagle)),
        "ratios": table(
            f"engine | drafter | | {BATCHES}", (row for run in paper for row in paper_rows(*run))
        ),
        "crossings": table(CROSSING_HEAD, (crossing_row(*run) for run in paper)),
        "implied": table(f"engine | drafter | {BATCHES}", (implied_row(*run) for run in paper)),
        "heads": table(f"engine | expected | {BATCHES}", head_rows([case for case, _ in paper])),
        "trees": table(TREE_HEAD, tree_rows(groundtruth)),
        "tree_order": table(ORDER_HEAD, order_rows(groundtruth)),
        "tree_growth": table(GROWTH_HEAD, growth_rows(groundtruth)),
        **tree_engine(),
        **other_tables(groundtruth),
    }
    return Template(TEXT.read_text(encoding="utf-8")).substitute(tables)


def other_tables(groundtruth: Path) -> dict[str, str]:
    """The summary, and the cases that have a module of their own."""
    return {
        "summary": table(summary.HEAD, summary.rows(groundtruth)),
        "referees": table(referees.HEAD, referees.rows()),
        "a100": table(a100.HEAD, a100.rows(groundtruth)),
        "a100_ratios": table(a100.RATIO_HEAD, a100.ratio_rows(groundtruth)),
        "a100_worth": table(a100.WORTH_HEAD, a100.worth_rows(groundtruth)),
        "drafts": table(drafts.HEAD, drafts.rows(groundtruth)),
        "drafts_two": table(drafts.TWO_HEAD, drafts.two_rows(groundtruth)),
        "golden": table(drafts.GOLDEN_HEAD, drafts.golden_rows(groundtruth)),
        "whole": table(surfaces.HEAD, (each.line for each in surfaces.whole(groundtruth))),
        "left_out": table(surfaces.HEAD, (each.line for each in surfaces.left_out(groundtruth))),
        "stated": table(stated.HEAD, stated.rows(groundtruth)),
        "saved": f"{surfaces.saved_ns_per_layer(groundtruth) / 1e3:.0f}",
        "cliff": table(surfaces.CLIFF_HEAD, surfaces.cliff_rows(groundtruth)),
        "counters": table(counters.HEAD, counters.rows(groundtruth)),
        "rtx": table(rtx.HEAD, rtx.rows(groundtruth)),
        **counters.readings(groundtruth),
    }


# -- SpecDecode-Bench ------------------------------------------------------------------------------


def bench_rows(case: BenchCase, fitted: Arms, composed: Arms) -> list[list[str]]:
    """One row per batch size."""
    return [
        [
            case.dataset,
            DRAFTER_NAMES[case.drafter],
            str(batch),
            f"{published:.3f}",
            f"{fitted[batch].ratio:.3f}",
            percent(error(fitted[batch].ratio, published)),
            verdict(bench_passes(case, fitted, batch)),
            f"{composed[batch].ratio:.3f}",
            percent(error(composed[batch].ratio, published)),
        ]
        for batch, published in case.published.items()
    ]


def bench_passes(case: BenchCase, arms: Arms, batch: int) -> bool:
    """Whether the ratio is within the case's limit."""
    return abs(error(arms[batch].ratio, case.published[batch])) <= case.limit


def share_rows(groundtruth: Path, arms: Arms) -> Iterable[list[str]]:
    """Percent of step time, published / simulated, of plain decoding and of EAGLE."""
    published = published_shares(groundtruth)
    for method in ("none", "eagle"):
        for batch in (1, 64, 128):
            run = arms[batch].plain if method == "none" else arms[batch].drafting
            pairs = zip(published[method, batch].values(), shares(run).values(), strict=True)
            yield [DRAFTER_NAMES[method], str(batch), *(f"{a:.1f} / {b:.1f}" for a, b in pairs)]


# -- EAGLE-3 paper ---------------------------------------------------------------------------------


def paper_rows(case: PaperCase, arms: Arms) -> list[list[str]]:
    """Published ratios by batch, and simulated ones below them."""
    published = [f"{ratio:.2f}" for ratio in case.published.values()]
    simulated = [f"{arms[batch].ratio:.2f}" for batch in case.published]
    errors = [percent(error(arms[batch].ratio, ratio)) for batch, ratio in case.published.items()]
    return [
        [case.engine, case.method, "published", *_padded(published)],
        ["", "", "simulated", *_padded(simulated)],
        ["", "", "error", *_padded(errors)],
    ]


def crossing_row(case: PaperCase, arms: Arms) -> list[str]:
    """First batch size at which speculation loses, and whether it is found within a grid step."""
    there = crossing(case.published)
    here = crossing({batch: arms[batch].ratio for batch in case.published})
    return [
        case.engine,
        case.method,
        _batch(case, there),
        _batch(case, here),
        verdict(paper_passes(case, arms)),
    ]


def paper_passes(case: PaperCase, arms: Arms) -> bool:
    """Whether the crossing is at most one grid step from the published one."""
    here = crossing({batch: arms[batch].ratio for batch in case.published})
    return abs(here - crossing(case.published)) <= 1


def _batch(case: PaperCase, index: int) -> str:
    batches = list(case.published)
    return str(batches[index]) if index < len(batches) else f"none up to {batches[-1]}"


def implied_row(case: PaperCase, arms: Arms) -> list[str]:
    """Mean step that the published ratio implies, less the simulated one, in ms by batch.

    The simulated ratio is inverse to the length of a drafting step, all else being equal.
    """
    cells = []
    for batch, published in case.published.items():
        step = arms[batch].drafting.metrics["step_mean_ms"]
        cells.append(f"{step * (arms[batch].ratio / published - 1):+.1f}")
    return [case.engine, case.method, *_padded(cells)]


def head_rows(cases: list[PaperCase]) -> Iterable[list[str]]:
    """Published EAGLE over EAGLE-3 by batch, and the quotient of the acceptance lengths used."""
    for eagle, eagle3 in zip(cases[::2], cases[1::2], strict=True):
        cells = [f"{ratio / eagle3.published[batch]:.2f}" for batch, ratio in eagle.published.items()]
        yield [eagle.engine, f"{eagle.tau / eagle3.tau:.2f}", *_padded(cells)]


# -- trees -----------------------------------------------------------------------------------------


def tree_rows(groundtruth: Path) -> Iterable[list[str]]:
    """One row per batch size and shape of drafts."""
    for batch in TREE_BATCHES:
        for arm in TREE_ARMS:
            published = tree_ratios(groundtruth, arm)[batch]
            row = [str(batch), arm.name, f"{published:.3f}"]
            for arms in (arm.simulate(), arm.simulate_engine()):
                row += [f"{arms[batch].ratio:.3f}", percent(error(arms[batch].ratio, published))]
            yield row


def tree_orders(groundtruth: Path, batch: int) -> tuple[tuple[str, ...], ...]:
    """Shapes from best to worst: published, with composed costs, and with SGLang's time."""
    return (
        order({arm.name: tree_ratios(groundtruth, arm)[batch] for arm in TREE_ARMS}),
        order({arm.name: arm.simulate()[batch].ratio for arm in TREE_ARMS}),
        order({arm.name: arm.simulate_engine()[batch].ratio for arm in TREE_ARMS}),
    )


def order_rows(groundtruth: Path) -> Iterable[list[str]]:
    """Whether the order of the three shapes is found, by batch size."""
    for batch in TREE_BATCHES:
        published, *simulated = tree_orders(groundtruth, batch)
        row = [str(batch), " > ".join(published)]
        for found in simulated:
            row += [" > ".join(found), verdict(found == published)]
        yield row


def growth_rows(groundtruth: Path) -> Iterable[list[str]]:
    """Ratio at batch 128 over that at 64, by shape and dataset."""
    for arm in TREE_ARMS:
        ratios = [
            tree_ratios(groundtruth, arm, dataset)
            for dataset in ("GSM8K", "CNN/DM", "ShareGPT", "InstructCoder")
        ]
        arms = arm.simulate_engine()
        here = arms[128].ratio / arms[64].ratio
        yield [arm.name, *(f"{published[128] / published[64]:.2f}" for published in ratios), f"{here:.2f}"]


def tree_engine() -> dict[str, str]:
    """What was estimated of SGLang at batch 1, from the profile's assumptions."""
    stated = {each.what: each.value for each in load_profile(SCENARIOS / SGLANG).assumptions}
    return {
        "tree_loop": stated["drafters.*.first.loop"],
        "tree_mask": stated["drafters.eagle3-tree.first.masked_attention"],
    }


def _padded(cells: list[str]) -> list[str]:
    """Table 5 has no batch 64."""
    return cells + [""] * (9 - len(cells))


def main(arguments: list[str] | None = None) -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(prog="tests.published.page", description=__doc__)
    parser.add_argument("--groundtruth", type=Path, required=True, help="folder of the published tables")
    parser.add_argument("--out", type=Path, required=True, help="file to write")
    options = parser.parse_args(arguments)
    write_atomically(options.out, page(options.groundtruth))


if __name__ == "__main__":
    main()
