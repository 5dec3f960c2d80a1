"""The table at the top of the page: every case of the ground truth that is open to developers."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tests.published import a100, counters, drafts, rtx, surfaces
from tests.published.judged import Account, Row, account, percent
from tests.published.measure import (
    CHAIN,
    TREE_21,
    TREE_ARMS,
    Arms,
    bench_cases,
    crossing,
    error,
    order,
    paper_cases,
    tree_ratios,
)

HEAD: Final = "case | what | mark | inputs | which are | rows | hold | worst error | verdict"
TREE_LIMIT: Final = 0.15
FITTED_TREES: Final = {(CHAIN.stem, 1), (TREE_21.stem, 1)}
"""Ratios of Fig. 2 that SGLang's time was estimated from."""


def rows(groundtruth: Path) -> Iterable[list[str]]:
    """One line for each case and set of inputs."""
    for each in accounts(groundtruth):
        held = (str(len(each.verdicts)), str(each.held), percent(each.worst)) if each.verdicts else ("",) * 3
        yield [str(each.case or ""), each.what, each.mark, each.inputs, each.kind, *held, each.verdict]


def accounts(groundtruth: Path) -> list[Account]:
    """In order of the cases."""
    return [
        *a100.accounts(groundtruth),
        *_figure1(groundtruth),
        *_trees(groundtruth),
        _old_engines(groundtruth),
        *drafts.accounts(groundtruth),
        *surfaces.accounts(groundtruth),
        *counters.accounts(groundtruth),
        *rtx.accounts(groundtruth),
    ]


def _figure1(groundtruth: Path) -> list[Account]:
    cases = bench_cases(groundtruth)
    what, mark = "SpecDecode-Bench Fig. 1: speed-up of EAGLE and n-gram, H100", "7 %, CNN/DM 10 %"
    fitted = [
        Row(published, arms[batch].ratio, case.limit)
        for case in cases
        for arms in (case.simulate(),)
        for batch, published in case.published.items()
    ]
    composed = [
        Row(published, arms[batch].ratio, case.limit)
        for case in cases
        for arms in (case.simulate_composed(),)
        for batch, published in case.published.items()
    ]
    authors = "step times that the authors fitted to their engine; their traces"
    tables = "kernels from tables; host and launches from the authors; their traces"
    return [
        account(2, what, mark, authors, "not fitted to the ratios", fitted),
        account(2, what, mark, tables, "not fitted to the ratios", composed),
    ]


def _trees(groundtruth: Path) -> list[Account]:
    """Each ratio within the limit and on its side of 1, and the order of the three at each batch."""
    what, mark = "SpecDecode-Bench Fig. 2: trees and chain, H100", "15 % and side of 1; order"
    kernels = "kernels from tables; acceptance from two lengths"
    fitted = f"{kernels}; two times of SGLang"
    simulated = {arm.stem: (arm.simulate(), arm.simulate_engine()) for arm in TREE_ARMS}
    return [
        _tree_account(groundtruth, {stem: arms[0] for stem, arms in simulated.items()}, what, mark, kernels),
        _tree_account(groundtruth, {stem: arms[1] for stem, arms in simulated.items()}, what, mark, fitted),
    ]


def _tree_account(
    groundtruth: Path, simulated: dict[str, Arms], what: str, mark: str, inputs: str
) -> Account:
    published = {arm.stem: tree_ratios(groundtruth, arm) for arm in TREE_ARMS}
    engine = "SGLang" in inputs
    spent = FITTED_TREES if engine else set()
    pairs = [
        (ratio, simulated[stem][batch].ratio)
        for stem, ratios in published.items()
        for batch, ratio in ratios.items()
        if (stem, batch) not in spent
    ]
    near = [abs(error(s, p)) <= TREE_LIMIT and (s > 1) == (p > 1) for p, s in pairs]
    ordered = [
        order({stem: ratios[batch] for stem, ratios in published.items()})
        == order({stem: arms[batch].ratio for stem, arms in simulated.items()})
        for batch in next(iter(published.values()))
    ]
    kind = "fitted on two ratios at batch 1; those left out" if engine else "blind"
    return Account(3, what, mark, inputs, kind, (*near, *ordered), tuple(error(s, p) for p, s in pairs))


def _old_engines(groundtruth: Path) -> Account:
    verdicts, errors = [], []
    for case in paper_cases(groundtruth):
        arms = case.simulate()
        here = crossing({batch: arms[batch].ratio for batch in case.published})
        verdicts.append(abs(here - crossing(case.published)) <= 1)
        errors += [error(arms[batch].ratio, ratio) for batch, ratio in case.published.items()]
    return Account(
        5,
        "EAGLE-3 paper, Tables 3 and 5: batch from which drafting loses",
        "one grid step",
        "kernels from tables; passes and host of other engines",
        "not fitted to the ratios",
        tuple(verdicts),
        tuple(errors),
    )
