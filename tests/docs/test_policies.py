"""docs/policies.md says what the kept sweep says, and the kept sweep is what the simulator makes."""

from __future__ import annotations

import pytest

from sim.scenario.load import load_scenario
from sim.sweep import run_scenario
from tests.docs.policies import BOUND, OURS, PAGE, SCENARIO, Sweep, page, read, rows_of

AGAIN = "moe, chat, short c=1"


@pytest.fixture(scope="module")
def sweep() -> Sweep:
    return read()


def test_the_page_is_made_from_the_kept_sweep(sweep: Sweep) -> None:
    assert PAGE.read_text(encoding="utf-8") == page(sweep)


def test_every_policy_of_the_scenario_stands_in_every_cell(sweep: Sweep) -> None:
    scenario = load_scenario(SCENARIO)
    assert list(scenario.labels) == sweep.policies
    assert len(sweep.cells) == 60
    assert set(sweep.rows) == {(cell, policy) for cell in sweep.cells for policy in sweep.policies}


def test_no_chain_policy_is_above_the_oracle_anywhere(sweep: Sweep) -> None:
    above = [
        (cell, row.policy)
        for cell in sweep.cells
        for row in sweep.of(cell)
        if row.chain and row.policy != BOUND and sweep.regret(cell, row.policy) < 0
    ]
    assert above == []


def test_ours_is_nowhere_far_behind_the_best_of_the_others(sweep: Sweep) -> None:
    """docs/policies.md names every cell in which it is 1 % or more behind."""
    worst = min(
        sweep.rows[cell, OURS].tokens_per_s / sweep.best_other(cell).tokens_per_s for cell in sweep.cells
    )
    assert worst > 0.98


def test_a_cell_run_again_gives_what_is_kept(sweep: Sweep) -> None:
    """One policy of four: a cell of all of them takes two minutes."""
    scenario = load_scenario(SCENARIO)
    some = scenario.written["policies"][::4]
    cell = {"profile": scenario.profiles["moe"], "profiles": {}, "policies": some}
    for key, label in (("acceptance", "chat"), ("workload", "short c=1")):
        cell[key] = scenario.written["sweep"][key][label]
    alone = load_scenario(SCENARIO, {**cell, "sweep": {}})
    again = rows_of(run_scenario(alone).comparison.cells[0])
    kept = {row.policy: row.tokens_per_s for row in sweep.of(AGAIN)}
    found = {row.policy: row.tokens_per_s for row in again}
    assert len(found) == len(some)
    assert found == {policy: kept[policy] for policy in found}
