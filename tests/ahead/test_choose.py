"""When a process compiles or loads the machine code: rent or buy."""

from __future__ import annotations

import sys

import pytest

from sim.ahead import choose
from tests.ahead.test_same_bytes import SMALL
from tests.engine.test_second_implementation import setup_of


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A process that has stepped through nothing and has no machine code, on disk or in memory."""
    monkeypatch.delitem(sys.modules, "sim.ahead.kernel", raising=False)
    monkeypatch.setattr(choose, "_stepped", 0)
    monkeypatch.setattr(choose, "_expected", 1)
    monkeypatch.setattr(choose, "_compiled", lambda: False)
    return monkeypatch


def test_a_process_compiles_once_it_has_stepped_through_what_compiling_costs(
    fresh: pytest.MonkeyPatch,
) -> None:
    """Each run has 72 output tokens."""
    fresh.setattr(choose, "COMPILING", 200)
    assert [choose.repays(setup_of(SMALL)) for _ in range(3)] == [False, False, True]


def test_machine_code_on_disk_is_loaded_sooner(fresh: pytest.MonkeyPatch) -> None:
    """Loading costs less than compiling."""
    fresh.setattr(choose, "LOADING", 100)
    assert not choose.repays(setup_of(SMALL))
    fresh.setattr(choose, "_compiled", lambda: True)
    assert choose.repays(setup_of(SMALL))


def test_what_a_sweep_is_about_to_step_through_counts_at_once(fresh: pytest.MonkeyPatch) -> None:
    """A sweep says how many runs are to come."""
    fresh.setattr(choose, "COMPILING", 200)
    choose.expect(3)
    assert choose.repays(setup_of(SMALL))
